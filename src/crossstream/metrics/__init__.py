"""What a running application can be watched by: numbers for Prometheus and OpenTelemetry, and for the page in `ui`.

`observation` is an application at one moment, which `application.totals` makes; `table` names the numbers. Nothing that
exports them is imported unless something is to be watched.
"""
