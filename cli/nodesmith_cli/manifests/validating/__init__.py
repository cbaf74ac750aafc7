"""`nodesmith validate`: everything that is wrong with manifests, at once, at its line.

`objects` looks at each object alone, `references` at the EC2NodeClasses that NodePools name, `pools` at NodePools with
what they may buy, `hosting` at pods with what could host them, `budgets` at budgets with the pods they guard.
"""
