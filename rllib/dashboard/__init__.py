"""The web page of `rllib dashboard`: it shows the runs of `rllib train` and the trials of Tune below a directory.

    index.py        the runs and experiments below the directory, and their changes
    run.py          one run: its state and its row in the table
    journals.py     experiments of Tune: header and trials, read as the journal grows
    result_file.py  result.json, read as it grows
    series.py       columns of results, at most 2,000 points of each
    details.py      one run: settings that differ from the defaults, checkpoints, ends of logs, newest result
    app.py          the server, its answers to the browser, and the check of its requests
    static/         the page: no build step, nothing from other servers

Nothing here writes into the directory, and nothing in it is run or unpickled.
"""
