"""`python -m caql` is `caql`."""

from caql.cli import main

if __name__ == "__main__":
    main()
