"""The page of `rllib report`: runs in one HTML file, which needs no network and runs nothing.

recorded.py  what the files of a run say
report.py    what a report shows
outcomes.py  its parts about what was reached: comparison, curves, differences, evaluations, videos
records.py   its parts about the runs: state, commands, machines, settings
page.py      the page
charts.py    curves as SVG, in the colours of the dashboard's page
markup.py    HTML elements, whose text is always escaped
texts.py     numbers and dates
"""
