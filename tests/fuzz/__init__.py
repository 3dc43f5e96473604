"""A fuzzer: nothing that a caller does may crash the process, hang it, leak, or read uninitialized memory.

`python -m fuzz` (or `make fuzz`) runs random programs; `make test-all` runs a fixed number of them.

Neither Hypothesis nor Atheris is suitable. Hypothesis runs and shrinks in the process under test, which the relevant
findings kill; Atheris needs a libFuzzer build of the extensions with Clang. The rest is small: a program is a list of
lines of Python source, chosen by a `random.Random`. Each line is written to a journal before it runs, so whatever kills
the process, the journal has a script that reproduces it, and shrinking means deleting lines.

- `values`: expressions for arguments, plausible and hostile
- `steps`: the public names, and the next line of a program
- `helpers`: what programs may use besides minigrad and NumPy
- `child`: runs programs in a separate process and judges every line
- `__main__`: starts children, shrinks their findings, and prints them as scripts
- `faults`: broken functions that test whether the fuzzer finds them
"""
