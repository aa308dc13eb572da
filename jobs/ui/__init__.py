"""`launch ui`: the verbs as pages in a browser, of this machine and for one user alone.

A page is made of what verbs print with `--json` (jobs.calling), and an action is a verb's words, shown before it
is done; nothing is kept here. See docs/ui.md and docs/adr/0024-pages-in-the-browser.md.
"""
