"""Pages for people: one small module that every report is shown with.

A page is one HTML file that needs nothing else: style and script lie in it, charts are inline SVG or plain boxes, and
nothing is fetched. It can be mailed, printed, kept beside a model and compared as text. Without scripts all of it is
still readable; the script only sorts, searches and folds tables.
"""
