#!/usr/bin/python3
"""Tests check_layers.py with the project's own layers.txt: what the design allows and what it bans."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check_layers  # noqa: E402

EDGES = [
    # user, used, is it allowed in a library, is it allowed in a test
    ("base:status", "third_party:absl", True, True),
    ("base:status", "third_party:json", False, True),
    ("base:status", "topology:topology", False, False),
    ("kernels/cpu:cpu", "kernels/ops:program", True, True),
    ("kernels/cpu:cpu", "base:dtype", True, True),
    ("kernels/cpu:cpu", "third_party:hwy", True, True),
    ("kernels/cpu:cpu", "model/config:model_config", False, False),
    ("kernels/cpu:cpu", "parallel/comm:communicator", False, False),
    ("topology:topology", "model/config:model_config", False, False),
    ("model/format:tensor_source", "kernels/packing:packing", False, False),
    ("parallel/planner:planner", "topology:topology", True, True),
    ("parallel/planner:planner", "kernels/packing:packing", True, True),
    ("parallel/planner:planner", "kernels/cpu:cpu", False, False),
    ("parallel/planner:planner", "model/format:tensor_source", False, False),
    ("parallel/comm/mpi:mpi", "third_party:mpi", True, True),
    ("parallel/comm:communicator", "third_party:mpi", False, True),
    ("worker:worker", "third_party:mpi", False, True),
    ("worker:worker", "@openmpi:mpi", False, False),
    ("worker/engine:engine", "kernels/cpu:cpu", True, True),
    ("worker/engine:engine", "proto:inference", False, True),
    ("worker/engine:engine", "proto/convert:plan", False, True),
    ("worker/rpc:client", "proto:cluster", True, True),
    ("worker/rpc:client", "proto/convert:plan", True, True),
    ("worker/engine:engine", "coordinator/service:service", False, False),
    ("worker/scheduler:scheduler", "worker/kv:page_pool", False, False),
    ("coordinator/service:service", "worker/scheduler:scheduler", False, False),
    ("coordinator/service:service", "proto:inference", False, True),
    ("coordinator/service:service", "third_party:grpc++", False, True),
    ("client:skein", "proto:inference", True, True),
    ("client:skein", "coordinator:daemon", False, False),
    ("coordinator/rpc_x:x", "proto:inference", False, True),
    ("proto/convert:plan", "parallel/plan:plan", True, True),
    ("proto/convert:plan", "parallel/planner:planner", False, False),
    ("proto:plan", "parallel/plan:plan", False, False),
    ("coordinator:coordinator", "tests:helpers", False, False),
    ("coordinator:coordinator", "checkpoints/bard:bard", False, True),
    ("parallel/comm/mpi:mpi_test_np8", "tests/mpi:mpirun.sh", False, True),
    ("parallel/comm/mpi:mpi_test_np8", "tests/engine:local_replica", False, False),
    ("tests:service_test", "worker/engine:engine", True, True),
    ("new_folder:x", "base:status", False, False),
]

INCLUDES = [
    # file, its line, is it allowed in a library, is it allowed in a test
    ("kernels/cpu/a.cc", '#include "kernels/ops/program.h"', True, True),
    ("kernels/cpu/a.cc", '#include "model/config/model_config.h"', False, False),
    ("kernels/cpu/a.cc", '#  include "parallel/comm/communicator.h"', False, False),
    ("kernels/cpu/a.cc", '// #include "model/config/model_config.h"', True, True),
    ("kernels/cpu/a.cc", "#include <vector>", True, True),
    ("kernels/cpu/a.cc", '#include "hwy/highway.h"', True, True),
    ("kernels/cuda/a.cu", "#include <cuda_runtime.h>", True, True),
    ("worker/engine/a.cc", "#include <cuda_runtime.h>", False, True),
    ("worker/engine/a.cc", "#include <mpi.h>", False, True),
    ("parallel/comm/mpi/a.cc", "#include <mpi.h>", True, True),
    ("parallel/comm/nccl/a.cc", '#include "nccl.h"', True, True),
    ("parallel/comm/mpi/a.cc", '#include "nccl.h"', False, True),
    ("coordinator/service/a.cc", '#include "proto/inference.pb.h"', False, True),
    ("coordinator/service/a.cc", "#include <grpcpp/grpcpp.h>", False, True),
    ("coordinator/rpc/a.cc", '#include "proto/inference.grpc.pb.h"', True, True),
    ("coordinator/rpc/a.cc", '#include "worker/rpc/a.h"', False, False),
]

QUERY = """<?xml version="1.1" encoding="UTF-8" standalone="no"?>
<query version="2">
  <rule class="{kind}" name="//{package}:planted">
    <rule-input name="//{package}:{file}"/>
    <rule-input name="//base:status"/>
  </rule>
</query>
"""


class CheckLayersTest(unittest.TestCase):

    def setUp(self):
        self.table = check_layers.read_table(pathlib.Path(HERE, "layers.txt").read_text(encoding="utf-8"))

    def test_edges(self):
        for user, used, in_library, in_test in EDGES:
            for testonly, allowed in ((False, in_library), (True, in_test)):
                with self.subTest(user=user, used=used, testonly=testonly):
                    why = check_layers.may_use(self.table, user, testonly, used)
                    self.assertEqual(why is None, allowed, why)

    def test_views(self):
        lines = [f"//{user} //{used}" for user, used, _, _ in EDGES]
        found = list(check_layers.forbidden_views(self.table, lines))
        self.assertEqual(len(found), sum(not in_library for _, _, in_library, _ in EDGES))
        self.assertIn("//worker/kv:page_pool is visible to //worker/scheduler:scheduler:", " ".join(found))

    def test_includes(self):
        for path, line, in_library, in_test in INCLUDES:
            for kind, allowed in (("cc_library", in_library), ("cc_test", in_test)):
                with self.subTest(path=path, line=line, kind=kind), tempfile.TemporaryDirectory() as folder:
                    root = pathlib.Path(folder)
                    package, _, file = path.rpartition("/")
                    (root / package).mkdir(parents=True)
                    (root / path).write_text(f"// A file.\n{line}\n")
                    rules = list(check_layers.read_query(QUERY.format(kind=kind, package=package, file=file)))
                    self.assertEqual([rule.files for rule in rules], [[path]])
                    self.assertEqual(list(check_layers.forbidden_edges(self.table, rules)), [])
                    found = list(check_layers.forbidden_includes(self.table, rules, [root]))
                    self.assertEqual(found == [], allowed, found)


if __name__ == "__main__":
    unittest.main()
