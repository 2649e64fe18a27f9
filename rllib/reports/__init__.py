"""The page of `rllib report`: runs in one HTML file, which needs no network and runs nothing.

recorded.py  what the files of the runs say
charts.py    curves as SVG, in the colours of the dashboard's page
markup.py    HTML elements, whose text is always escaped
page.py      the page
"""
