"""What a running application can be watched by: numbers for Prometheus and OpenTelemetry, and for the page in `ui`.

One listener sees each batch (`watch.Watch`) and makes an `observation.Observation` of it and of the driver's own state.
`table` names the numbers; nothing here is imported unless something is to be watched.
"""
