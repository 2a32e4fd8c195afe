"""Answers questions about CSV and JSON, from the input or from a file of the workspace, with the standard library alone."""

import csv
import io
import json

from palyra_skill import ToolError, Tools, tool

SOURCE = {
    "text": {"type": "string", "description": "the data itself"},
    "path": {"type": "string", "description": "a file of the workspace, such as data/sales.csv"},
    "format": {"enum": ["csv", "json"]},
}


def rows_of(query):
    if "path" in query:
        try:
            with open(f"/workspace/{query['path']}", encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise ToolError("unreadable", f"{query['path']}: {error.strerror}") from error
    else:
        text = query["text"]
    kind = query.get("format") or ("json" if query.get("path", "").endswith(".json") else "csv")
    if kind == "csv":
        return list(csv.DictReader(io.StringIO(text)))
    rows = json.loads(text)
    if not isinstance(rows, list):
        raise ToolError("invalid_data", "the JSON is not a list of objects")
    return rows


def number(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


@tool(
    "query",
    "Selects, filters, sorts and limits the rows of a table in CSV or JSON.",
    input={
        "type": "object",
        "properties": {
            **SOURCE,
            "where": {"type": "object", "description": "columns and the values that they must have"},
            "select": {"type": "array", "items": {"type": "string"}},
            "order_by": {"type": "string"},
            "limit": {"type": "integer", "minimum": 0},
        },
    },
    output={"type": "object", "properties": {"rows": {"type": "array"}, "total": {"type": "integer"}}},
)
def query(query):
    rows = rows_of(query)
    for column, wanted in query.get("where", {}).items():
        rows = [row for row in rows if str(row.get(column)) == str(wanted)]
    if "order_by" in query:
        column = query["order_by"]
        rows.sort(key=lambda row: (number(row.get(column)) is None, number(row.get(column)) or 0, str(row.get(column))))
    total = len(rows)
    rows = rows[: query.get("limit", total)]
    if "select" in query:
        rows = [{column: row.get(column) for column in query["select"]} for row in rows]
    return {"rows": rows, "total": total}


@tool(
    "sum",
    "Adds up a column of a table, for each value of another column if one is given.",
    input={"type": "object", "properties": {**SOURCE, "column": {"type": "string"}, "by": {"type": "string"}},
           "required": ["column"]},
)
def total(query):
    sums = {}
    for row in rows_of(query):
        key = str(row.get(query["by"])) if "by" in query else "all"
        sums[key] = sums.get(key, 0.0) + (number(row.get(query["column"])) or 0.0)
    return {"sums": sums}
