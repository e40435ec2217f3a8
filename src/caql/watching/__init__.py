"""`caql watch`: a run or a sweep while it goes on, read from its folders."""
