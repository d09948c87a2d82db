"""The text that Prometheus reads."""

from holdfast.service.metrics import BUCKETS, Metrics


def test_counts_add_up_and_labels_are_escaped() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.3, 99.0):
        metrics.request("GET", "/a", 200, seconds)
    metrics.request("BREW", "other", 405, 0.001)
    metrics.answer('odd"name\\', cached=True)
    lines = metrics.text([("flights", 7, 10)]).splitlines()
    assert 'holdfast_requests_total{method="GET",route="/a",status="200"} 3' in lines
    assert 'holdfast_requests_total{method="other",route="other",status="405"} 1' in lines
    assert 'holdfast_answers_total{dataset="odd\\"name\\\\",cached="true"} 1' in lines
    assert 'holdfast_budget_left{dataset="flights"} 7' in lines
    assert f'holdfast_request_seconds_bucket{{le="{BUCKETS[0]}"}} 2' in lines
    assert 'holdfast_request_seconds_bucket{le="+Inf"} 4' in lines
    assert "holdfast_request_seconds_count 4" in lines
    buckets = [int(line.split()[-1]) for line in lines if "_bucket" in line]
    assert buckets == sorted(buckets)
