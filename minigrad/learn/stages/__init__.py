"""The stages of the course: a text for the reader, and a solution, which becomes the reader's file.

There, functions marked `# yours` have no body, definitions marked `# ours` are missing, and lines that begin with
`# bug:` take the place of the line after them.
"""
