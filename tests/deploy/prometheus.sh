#!/usr/bin/env bash
# Has Prometheus' own promtool check deploy/prometheus/alerts.yaml, and fire each alert. Outside CI: needs Debian's package prometheus.
#   tests/deploy/prometheus.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
(($# == 0)) || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 2; }
command -v promtool >/dev/null || { echo "$0: no promtool: apt-get install prometheus" >&2; exit 1; }
promtool check rules deploy/prometheus/alerts.yaml
promtool test rules tests/deploy/alerts_test.yaml
