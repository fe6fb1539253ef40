"""HTML reports: tables, charts, style and script, shared by all reports.

A page is one HTML file that needs nothing else: style and script lie in it, charts are inline SVG or plain boxes, and
nothing is fetched. It can be mailed, printed, kept beside a model and compared as text. Without scripts all of it is
still readable; the script only sorts, searches and folds tables.
"""
