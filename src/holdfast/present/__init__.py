"""One description of a run for people: what happened, in which order, in which words, and what it needs next.

The terminal (`holdfast.cli`) and the page (`holdfast.ui`) render what stands here, and interpret no entry themselves.
`timeline` reads a journal; `input`, `outcome` and `diff` say what went in, what came out and what changed; `standing`
and `remedies` say why a run does not continue and what helps; `words` and `names` have the words for all of it.
"""
