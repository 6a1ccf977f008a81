"""`python -m tapstore` is `tapstore`."""

from tapstore.cli import main

if __name__ == "__main__":
    main()
