"""A campaign against caql: fuzzed networks, kills, mutated files and bad command lines, for as long as one likes.

    python -m campaign --minutes 60        (or make campaign MINUTES=60)

Everything found lands in `campaign/found/` as a file that reproduces it; counts are kept there too, and another
start goes on with new seeds.
"""
