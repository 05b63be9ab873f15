"""`dovecote doctor`: reaches every engine of a configuration and says what is wrong and what to change.

`survey` asks and listens, `diagnose` judges what was seen, `show` prints it. Nothing is placed, and no engine is asked
to generate anything.
"""
