// What `worker probe` and `skein doctor` measure of GPUs and of the links between them, beside what
// CUDA tells of the cards.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_testing.h"
#include "proto/convert/machines_json.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/process.h"
#include "topology/topology.h"

namespace skein::testing {
namespace {

using kernels::cuda::MemoryPeak;
using kernels::cuda::ProductPeak;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;
using topology::Exchange;
using topology::ExchangeCurve;
using topology::Origin;

struct Outcome {
  int status = -1;
  std::string said;
};

Outcome Execute(std::vector<std::string> argv,
                std::vector<std::pair<std::string, std::string>> environment = {}) {
  // Figures that were kept are none.
  environment.emplace_back("XDG_CACHE_HOME", ::testing::TempDir() + "/no_cache");
  Process process({.name = "run", .argv = std::move(argv), .environment = environment});
  const std::optional<int> status = process.Wait(absl::Seconds(60));
  EXPECT_TRUE(status.has_value()) << process.Output();
  return {status.value_or(-1), process.Output()};
}

class MeasuredTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/1);  // as workers have them
    SKEIN_NEED_GPU();
  }

  static topology::Host Probe(int ranks, const std::vector<std::string>& flags = {}) {
    const std::string file = ::testing::TempDir() + "/probe.json";
    std::vector<std::string> argv = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-np",
                                     absl::StrCat(ranks)};
    argv.insert(argv.end(),
                {FindProgram("worker/worker"), "probe", "--device=cuda", "--json=" + file});
    argv.insert(argv.end(), flags.begin(), flags.end());
    const Outcome outcome = Execute(argv);
    EXPECT_EQ(outcome.status, 0) << outcome.said;
    const auto topology = convert::TopologyFromJson(ReadFileOrEmpty(file));
    SKEIN_EXPECT_OK(topology);
    if (!topology.ok() || topology->hosts.size() != 1) return {};
    return topology->hosts[0];
  }

  static const ExchangeCurve* Find(const topology::Host& host, Exchange exchange) {
    const auto found = std::find_if(host.exchanges.begin(), host.exchanges.end(), [&](auto& curve) {
      return curve.exchange == exchange && curve.ranks == 2;
    });
    return found == host.exchanges.end() ? nullptr : &*found;
  }
};

// Bytes a second of the largest result.
double LargestRate(const ExchangeCurve& curve) {
  return static_cast<double>(curve.times.back().bytes) /
         absl::ToDoubleSeconds(curve.times.back().time);
}

TEST_F(MeasuredTest, ACardDoesWhatItsClocksLetIt) {
  const topology::Host host = Probe(1);
  const auto card =
      std::find_if(host.interconnect.gpus.begin(), host.interconnect.gpus.end(),
                   [](const topology::Gpu& gpu) { return gpu.rates.origin == Origin::kMeasured; });
  ASSERT_NE(card, host.interconnect.gpus.end());
  const topology::DeviceRates& rates = card->rates;

  ASSERT_EQ(rates.reads.size(), 1);
  EXPECT_THAT(rates.reads[0].together_bytes_per_s / MemoryPeak(), AllOf(Gt(0.7), Lt(1.0)));

  // One row is bound by reads of weights, two bytes for two operations; many by arithmetic.
  double most = 0;
  int single_rows = 0;
  for (const topology::ProductRate& product : rates.products) {
    EXPECT_GT(product.operations_per_s, 0);
    if (product.dtype != DType::kBF16) continue;
    most = std::max(most, product.operations_per_s);
    if (product.rows != 1) continue;
    ++single_rows;
    // Caches keep some of what is read again.
    EXPECT_THAT(product.operations_per_s / MemoryPeak(), AllOf(Gt(0.4), Lt(1.2)));
  }
  EXPECT_GE(single_rows, 1);
  EXPECT_THAT(most / ProductPeak(), AllOf(Gt(0.4), Lt(1.0)));

  ASSERT_FALSE(rates.attention.empty());
  for (const topology::AttentionRate& attention : rates.attention) {
    EXPECT_THAT(attention.bytes_per_s / MemoryPeak(), AllOf(Gt(0.2), Lt(1.05)));
  }
  ASSERT_FALSE(rates.overheads.empty());
  for (const topology::Overhead& overhead : rates.overheads) {
    EXPECT_THAT(overhead.step, AllOf(Gt(absl::ZeroDuration()), Lt(absl::Milliseconds(5))));
    EXPECT_THAT(overhead.layer, AllOf(Gt(-absl::Nanoseconds(1)), Lt(absl::Milliseconds(1))));
  }
  // PCIe of four lanes to what NVLink has between a Grace and a Hopper.
  EXPECT_EQ(card->to_host.origin, Origin::kMeasured);
  EXPECT_THAT(card->to_host.bytes_per_s, AllOf(Gt(3e9), Lt(450e9)));
  EXPECT_THAT(card->to_host.latency, AllOf(Gt(absl::Microseconds(1)), Lt(absl::Milliseconds(1))));
}

TEST_F(MeasuredTest, CardsAndCoresAreNotOneJob) {
  const std::string worker = FindProgram("worker/worker");
  const Outcome outcome =
      Execute({"mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "1", worker, "probe",
               "--device=cpu", ":", "-np", "1", worker, "probe", "--device=cuda"});
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.said, HasSubstr("rank 0 computes on CPUs and rank 1 on a GPU"));
}

class TwoCardsTest : public MeasuredTest {
 protected:
  void SetUp() override {
    MeasuredTest::SetUp();
    if (IsSkipped()) return;
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> gpus, kernels::ListCudaDevices());
    if (gpus.size() < 2) GTEST_SKIP() << "no two GPUs";
  }
};

TEST_F(TwoCardsTest, ExchangesAreThoseOfTheWayThatIsTaken) {
  const topology::Host direct = Probe(2);
  const topology::Host by_host = Probe(2, {"--device-comm=host"});
  const ExchangeCurve* const fast = Find(direct, Exchange::kAllReduce);
  const ExchangeCurve* const slow = Find(by_host, Exchange::kAllReduce);
  ASSERT_TRUE(fast != nullptr && slow != nullptr);
  EXPECT_GT(fast->times.front().time, absl::Microseconds(1));
  EXPECT_GT(fast->times.back().time, fast->times.front().time);
  // Hosts gather, whatever GPUs have between them.
  EXPECT_NE(Find(direct, Exchange::kAllGather), nullptr);
  EXPECT_NE(Find(direct, Exchange::kTokenReturn), nullptr);
  // Of all paths that between the two; NVLink's is of one of its links.
  int measured = 0;
  for (const auto& [path, link] : direct.links) {
    if (link.origin != Origin::kMeasured) continue;
    ++measured;
    EXPECT_THAT(link.bytes_per_s, AllOf(Gt(0.5e9), Lt(500e9))) << topology::PathName(path);
    // Cards that do not reach each other by PCIe go by way of the host, too.
    if (path == topology::Path::kNvlink) EXPECT_GT(LargestRate(*fast), 4 * LargestRate(*slow));
  }
  EXPECT_EQ(measured, 1);
}

TEST_F(TwoCardsTest, TheDoctorSumsThere) {
  const std::vector<std::string> doctor = {FindProgram("client/skein"), "doctor", "--np=2",
                                           "--port=0"};
  const Outcome well = Execute(doctor);
  EXPECT_EQ(well.status, 0) << well.said;
  EXPECT_THAT(well.said, ContainsRegex("ok +exchanges +NCCL sums 64 MiB at [1-9][0-9.]* GB/s"));
  const Outcome ill = Execute(doctor, {{"NCCL_SOCKET_IFNAME", "nope0"}});
  EXPECT_EQ(ill.status, 1) << ill.said;
  EXPECT_THAT(ill.said, AllOf(ContainsRegex("error +[^\n]*NCCL_SOCKET_IFNAME=nope0"),
                              Not(HasSubstr("NCCL sums 64 MiB at"))));
}

}  // namespace
}  // namespace skein::testing
