"""Makes what is published: the sdist, and a wheel for a platform with libraries that are built already, so that whoever
installs it needs no compiler. None of this is installed.

`contents.py` and `cuda_contents.py` say what is built, `prebuild.py` builds it, `symbols.py` reads what a library asks
of a system, `archives.py` makes the files.
"""
