"""A fuzzer: nothing that a caller does may crash the process, hang it, leak, or read what was never written.

`python -m fuzz` (or `make fuzz`) runs random programs; `make test` runs a fixed number of them.

Neither Hypothesis nor Atheris carries this. Hypothesis runs and shrinks in the process under test, and the findings that
matter here end that process; Atheris needs a libFuzzer build of the extensions by Clang. What remains is
small: a program is a list of lines of Python source, chosen by a `random.Random`; each is written to a journal before it
runs, so whatever ends the process, the journal holds a script that does it again, and shrinking is deleting lines.

- `values`: expressions for arguments, plausible and hostile
- `steps`: the public names, and the next line of a program
- `helpers`: what programs may use besides minigrad and NumPy
- `child`: runs programs in a process of their own and judges every line
- `__main__`: starts children, shrinks what they find, and prints it as scripts
- `faults`: broken functions by which the tests show that the fuzzer finds what it is for
"""
