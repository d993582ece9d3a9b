#include "worker/probe/exchange_probe.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "base/view.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/sizes.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/comm/patience.h"
#include "parallel/plan/plan.h"
#include "proto/convert/machines_json.h"
#include "topology/topology.h"
#include "worker/engine/stage_groups.h"
#include "worker/probe/group_plan.h"
#include "worker/probe/samples.h"
#include "worker/rank_groups.h"

namespace skein::worker {
namespace {

using topology::Exchange;
using topology::ExchangeCurve;

// From a row of a small model to many rows of a large one; from 4 KiB on MPI sends messages of one
// host another way.
constexpr int64_t kSizes[] = {int64_t{1} << 10, int64_t{1} << 12, int64_t{1} << 14,
                              int64_t{1} << 18, int64_t{1} << 22};
constexpr int64_t kLeastBytes = kSizes[0];
constexpr int64_t kMostBytes = kSizes[std::size(kSizes) - 1];
constexpr int kSums = 8;      // of a Program, one behind the other as layers have them
constexpr int kLongSums = 2;  // the same of kMostBytes, on cores
constexpr int kCalls = 4;     // of another exchange, one behind the other
constexpr int kLeastSamples = 3;
constexpr int kMostSamples = 31;
// What takes as long, over a slow network or among ranks that share cores, is nearly the same each
// time.
constexpr int kLongSamples = 2;
constexpr absl::Duration kLong = absl::Milliseconds(20);
constexpr absl::Duration kBudget = absl::Milliseconds(10);  // of one size
constexpr double kLeastHop = 1e-6;                          // seconds, whatever the noise
constexpr absl::Duration kTimeout = absl::Minutes(1);
// A stage on cores computes for so long before it sends: who waits for it sleeps by then, and is
// woken.
constexpr absl::Duration kStageTime = absl::Microseconds(1500);
static_assert(kStageTime > comm::kSpin);

class ExchangeProbe {
 public:
  ExchangeProbe(comm::MpiRuntime& mpi, const ExchangeProbeOptions& options)
      : mpi_(mpi), options_(options), places_(mpi) {}

  absl::StatusOr<ProbedExchanges> Run() {
    if (mpi_.size() == 1) return ProbedExchanges{};
    SKEIN_RETURN_IF_ERROR(comm::FirstError(mpi_.world(), Open()));
    SKEIN_ASSIGN_OR_RETURN(probed_.crowded, SomeHostIsCrowded());
    for (const int size : places_.GroupSizes()) {
      SKEIN_RETURN_IF_ERROR(TimeGroups(size, /*alone=*/false));
      if (!probed_.crowded || size == places_.most_local()) continue;
      // Stages that wait poll meanwhile.
      const absl::Duration spin = mpi_.world().spin();
      mpi_.world().set_spin(kTimeout);
      const absl::Status timed = TimeGroups(size, /*alone=*/true);
      mpi_.world().set_spin(spin);
      SKEIN_RETURN_IF_ERROR(timed);
    }
    SKEIN_RETURN_IF_ERROR(TimePairs());
    if (places_.hosts() > 1) SKEIN_RETURN_IF_ERROR(TimeAcross());
    return std::move(probed_);
  }

 private:
  bool is_gpu() const { return options_.device.device.kind == DeviceKind::kCuda; }
  int host() const { return places_.host[mpi_.rank()]; }
  int local() const { return places_.local[mpi_.rank()]; }
  void Say(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  // Whether some host has fewer cores than ranks, so that groups take longer beside others. All
  // ranks measure such groups alone then; those of a host that has cores enough do so for nothing.
  absl::StatusOr<bool> SomeHostIsCrowded() {
    crowded_ = !is_gpu() && places_.of_hosts[host()] > options_.cores;
    const char mine = crowded_ ? 1 : 0;
    std::vector<char> all(mpi_.size());
    SKEIN_RETURN_IF_ERROR(mpi_.world().AllGather(
        {&mine, DType::kU8, 1, 1}, {all.data(), DType::kU8, mpi_.size(), 1}, kHostStream));
    return std::any_of(all.begin(), all.end(), [](char of) { return of != 0; });
  }

  absl::Status Open() {
    if (is_gpu()) {
      SKEIN_ASSIGN_OR_RETURN(backend_, kernels::MakeCudaBackend({.device = options_.device.gpu}));
    } else {
      SKEIN_ASSIGN_OR_RETURN(backend_, kernels::MakeCpuBackend({.threads = 1}));
    }
    return absl::OkStatus();
  }

  // The groups of a plan, connected as a job's are.
  struct Group {
    RankGroups groups;
    std::unique_ptr<kernels::Collectives> collectives;
  };
  absl::StatusOr<Group> Connect(const plan::Plan& plan) {
    Group group;
    SKEIN_ASSIGN_OR_RETURN(group.groups, MakeRankGroups(mpi_, plan, plan.ranks[mpi_.rank()],
                                                        {.device = options_.device.device.kind,
                                                         .tracker = &tracker_,
                                                         .timeout = kTimeout}));
    if (is_gpu()) {
      SKEIN_ASSIGN_OR_RETURN(group.groups.copies,
                             ConnectGpus({.asked = options_.device_comm,
                                          .why_not_nccl = AgreeOnNccl(
                                              mpi_.world(), options_.device_comm, options_.device),
                                          .gpu = options_.device.gpu,
                                          .self = absl::StrCat("rank ", mpi_.rank()),
                                          .timeout = kTimeout},
                                         mpi_, group.groups.tp.get(), group.groups.Hops()));
    }
    for (comm::Communicator* const of : group.groups.view().All()) of->set_timeout(kTimeout);
    group.collectives = MakeCollectives(group.groups.view());
    return group;
  }

  // A Program over an array, [rows, 1 KiB], whose rows are added up so many times among norms, as a
  // layer has it: residuals and gains are 0, and so are all sums.
  struct Array {
    kernels::Program program;
    std::unique_ptr<kernels::Weights> weights;
    std::unique_ptr<kernels::Executable> executable;
  };
  absl::StatusOr<std::unique_ptr<Array>> MakeArray(int count, bool sums,
                                                   kernels::Collectives* collectives) {
    auto array = std::make_unique<Array>();
    const DType dtype = kernels::ActivationDType(options_.device.device.kind, DType::kBF16);
    const int64_t cols = kLeastBytes / DTypeBytes(dtype, 1);
    array->program.buffers = {{.name = "array", .cols = cols, .port = true, .dtype = dtype},
                              {.name = "residual", .cols = cols, .dtype = dtype}};
    array->program.hop_dtype = dtype;
    array->program.weights = {
        {.name = "gain",
         .spec = {.kind = kernels::WeightSpec::Kind::kVector, .rows = 1, .cols = cols}}};
    for (int i = 0; i < count; ++i) {
      if (sums) array->program.ops.push_back(kernels::AllReduceOp{0});
      array->program.ops.push_back(kernels::AddRmsNormOp{1, 0, 0, 1e-5f, 0});
    }
    SKEIN_ASSIGN_OR_RETURN(array->weights, backend_->AllocateWeights(array->program));
    SKEIN_RETURN_IF_ERROR(array->weights->FinishLoading());
    SKEIN_ASSIGN_OR_RETURN(
        array->executable,
        backend_->Compile(array->program, {.rows = kMostBytes / kLeastBytes},
                          {.weights = array->weights.get(), .collectives = collectives}));
    SKEIN_RETURN_IF_ERROR(array->executable->WarmUp());
    return array;
  }

  // Seconds of a call, of as many samples as the slowest rank takes time for, so that all make as
  // many; those that are `idle` make none.
  // `computes`: how long a call takes beside what is measured, which is left out.
  absl::StatusOr<Sampled> Time(bool idle, absl::FunctionRef<absl::Status()> call,
                               absl::Duration computes = absl::ZeroDuration()) {
    std::vector<double> seconds;
    const auto time = [&]() -> absl::Status {
      const absl::Time begin = absl::Now();
      SKEIN_RETURN_IF_ERROR(call());
      seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin - computes));
      return absl::OkStatus();
    };
    if (!idle) {
      SKEIN_RETURN_IF_ERROR(call());  // what meets or is chosen at the first time
      SKEIN_RETURN_IF_ERROR(time());
    }
    const auto mine = static_cast<int32_t>(idle ? 0 : 1e6 * std::min(seconds.front(), 1e3));
    std::vector<int32_t> us(mpi_.size());
    SKEIN_RETURN_IF_ERROR(mpi_.world().AllGather(HostView(absl::MakeConstSpan(&mine, 1)),
                                                 HostView(absl::MakeSpan(us)), kHostStream));
    const absl::Duration first =
        absl::Microseconds(*std::max_element(us.begin(), us.end())) + computes;
    const double fit = absl::FDivDuration(kBudget, std::max(first, absl::Microseconds(1)));
    const int least = first > kLong ? kLongSamples : kLeastSamples;
    const int samples = static_cast<int>(std::clamp<double>(fit, least, kMostSamples));
    for (int i = 0; !idle && i < samples; ++i) SKEIN_RETURN_IF_ERROR(time());
    return idle ? Sampled{} : Summarise(std::move(seconds));
  }

  static absl::Status RunOnce(Array& array, int64_t rows) {
    array.executable->batch(0) = {.sequences = {{.rows = static_cast<int32_t>(rows)}},
                                  .token_ids = std::vector<int32_t>(static_cast<size_t>(rows))};
    SKEIN_ASSIGN_OR_RETURN(const kernels::Ticket ticket, array.executable->Enqueue(0));
    SKEIN_ASSIGN_OR_RETURN(const bool over,
                           array.executable->Wait(ticket, kHostStream, absl::Now() + kTimeout));
    if (!over) return absl::DeadlineExceededError("a sum of the probe takes too long");
    return absl::OkStatus();
  }

  // like: the ranks of both curves, and whether they are `across` or `alone`.
  absl::Status TimeSums(const plan::Plan& plan, const ExchangeCurve& like) {
    SKEIN_ASSIGN_OR_RETURN(Group group, Connect(plan));
    const bool idle = group.groups.tp == nullptr;
    std::unique_ptr<Array> with, without;
    const auto make = [&](int count) -> absl::Status {
      if (idle) return absl::OkStatus();
      SKEIN_ASSIGN_OR_RETURN(with, MakeArray(count, true, group.collectives.get()));
      SKEIN_ASSIGN_OR_RETURN(without, MakeArray(count, false, nullptr));
      return absl::OkStatus();
    };
    int count = kSums;
    SKEIN_RETURN_IF_ERROR(comm::FirstError(mpi_.world(), make(count)));
    ExchangeCurve sums = like, gathers = like;
    sums.exchange = Exchange::kAllReduce;
    gathers.exchange = Exchange::kAllGather;
    for (const int64_t bytes : kSizes) {
      const int64_t rows = bytes / kLeastBytes;
      if (bytes == kMostBytes && !is_gpu()) {
        SKEIN_RETURN_IF_ERROR(comm::FirstError(mpi_.world(), make(count = kLongSums)));
      }
      SKEIN_ASSIGN_OR_RETURN(const Sampled both, Time(idle, [&] { return RunOnce(*with, rows); }));
      SKEIN_ASSIGN_OR_RETURN(const Sampled norms,
                             Time(idle, [&] { return RunOnce(*without, rows); }));
      if (!idle) {
        Add(sums, bytes, std::max(both.median - norms.median, both.median / 20) / count,
            both.spread);
      }
      // What shards draw goes by way of the hosts' memory.
      const int calls = CallsOf(bytes);
      std::vector<std::byte> mine(bytes / like.ranks), all(mine.size() * like.ranks);
      SKEIN_ASSIGN_OR_RETURN(const Sampled gather, Time(idle, [&]() -> absl::Status {
                               for (int i = 0; i < calls; ++i) {
                                 SKEIN_RETURN_IF_ERROR(group.groups.tp->AllGather(
                                     HostView(absl::Span<const std::byte>(mine)),
                                     HostView(absl::MakeSpan(all)), kHostStream));
                               }
                               return absl::OkStatus();
                             }));
      if (!idle) Add(gathers, bytes, gather.median / calls, gather.spread);
    }
    // Ranks of a host that had no part know them from its first one; hosts without one, from the
    // first host.
    for (const ExchangeCurve* const curve : {&sums, &gathers}) {
      SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all, GatherCurves(mpi_, *curve));
      int first = places_.FirstOf(host());
      if (like.across && all[first].empty()) first = 0;
      // A host with fewer ranks has no such group.
      if (all[first].empty() || (like.alone && !crowded_)) continue;
      SKEIN_ASSIGN_OR_RETURN(probed_.curves.emplace_back(), ParseCurve(all[first]));
    }
    return absl::OkStatus();
  }

  // That a sample is the mean of.
  int CallsOf(int64_t bytes) const { return !is_gpu() && bytes == kMostBytes ? 1 : kCalls; }

  static void Add(ExchangeCurve& curve, int64_t bytes, double seconds, double spread) {
    // Times of more bytes are no less, whatever the noise.
    absl::Duration time = absl::Seconds(seconds);
    if (!curve.times.empty()) time = std::max(time, curve.times.back().time);
    curve.times.push_back({bytes, time});
    curve.spread = std::max(curve.spread, spread);
  }

  // Groups of a host measure at the same time, as replicas compute, or the first one alone, as a
  // stage does while others wait for it.
  absl::Status TimeGroups(int size, bool alone) {
    Say(absl::StrCat("sums of ", size, " ranks", alone ? " alone" : ""));
    return TimeSums(PlanOf(mpi_.size(), size, /*stages=*/false,
                           [&](int rank) { return SeatOnHost(places_, rank, size, alone); }),
                    {.ranks = size, .alone = alone});
  }

  static void Compute(absl::Duration time) {
    const absl::Time end = absl::Now() + time;
    while (absl::Now() < end) {
    }
  }

  // The mean time of a message each way between two stages. exchange: kSendReceive or, on cores,
  // kSendToAwake.
  absl::StatusOr<ExchangeCurve> TimeHops(const plan::Plan& plan,
                                         Exchange exchange = Exchange::kSendReceive) {
    const bool computes = !is_gpu() && exchange == Exchange::kSendReceive;
    SKEIN_ASSIGN_OR_RETURN(Group group, Connect(plan));
    comm::Communicator* const next = group.groups.next.get();
    comm::Communicator* const hop = next != nullptr ? next : group.groups.previous.get();
    std::unique_ptr<Array> array;
    const auto make = [&]() -> absl::Status {
      if (hop == nullptr) return absl::OkStatus();
      SKEIN_ASSIGN_OR_RETURN(array, MakeArray(kSums, false, nullptr));
      return absl::OkStatus();
    };
    SKEIN_RETURN_IF_ERROR(comm::FirstError(mpi_.world(), make()));
    ExchangeCurve curve = {.exchange = exchange, .ranks = 2};
    for (const int64_t bytes : kSizes) {
      const int calls = computes ? 1 : CallsOf(bytes);
      const auto round = [&]() -> absl::Status {
        const View data = array->executable->port(0, 0).First(bytes / kLeastBytes);
        const Stream stream = array->executable->port_stream(0);
        for (int i = 0; i < calls; ++i) {
          if (next == nullptr) SKEIN_RETURN_IF_ERROR(hop->Receive(data, 0, stream));
          if (computes) Compute(kStageTime);
          SKEIN_RETURN_IF_ERROR(hop->Send(data, next == nullptr ? 0 : 1, stream));
          if (next != nullptr) SKEIN_RETURN_IF_ERROR(hop->Receive(data, 1, stream));
        }
        // A batch waits for what the stream was given.
        if (!is_gpu()) return absl::OkStatus();
        array->executable->After(0, stream);
        return RunOnce(*array, 1);
      };
      SKEIN_ASSIGN_OR_RETURN(
          const Sampled sampled,
          Time(hop == nullptr, round, computes ? 2 * kStageTime : absl::ZeroDuration()));
      double batch = 0;
      if (is_gpu()) {
        SKEIN_ASSIGN_OR_RETURN(const Sampled alone,
                               Time(hop == nullptr, [&] { return RunOnce(*array, 1); }));
        batch = alone.median;
      }
      const double least = computes ? 2 * kLeastHop : sampled.median / 20;
      Add(curve, bytes, std::max(sampled.median - batch, least) / (2 * calls), sampled.spread);
    }
    if (hop != nullptr) SKEIN_RETURN_IF_ERROR(hop->Flush(next == nullptr ? 0 : 1));
    return curve;
  }

  // By rounds in which each rank of a host has another one; ranks of CPUs are alike, and one round
  // is enough.
  absl::Status TimePairs() {
    const int most = places_.most_local();
    if (most < 2) return absl::OkStatus();
    for (int round = 0; round < most + most % 2 - 1; ++round) {
      if (round > 0 && !is_gpu()) break;
      Say("messages between two ranks");
      const auto partner = [&](int at) { return PartnerIn(round, at, places_.of_hosts[host()]); };
      const plan::Plan plan = PlanOf(mpi_.size(), 2, /*stages=*/true,
                                     [&](int rank) { return SeatInPair(places_, rank, round); });
      SKEIN_ASSIGN_OR_RETURN(const ExchangeCurve curve, TimeHops(plan));
      SKEIN_ASSIGN_OR_RETURN(const auto pairs, Share(curve, partner));
      for (const auto& [at, of] : pairs) {
        probed_.pairs.push_back({at, partner(at), LinkOfMessages(of), round});
      }
      if (is_gpu()) continue;
      // Where all pairs are alike, their curves tell more than latency and bandwidth do.
      SKEIN_ASSIGN_OR_RETURN(const ExchangeCurve awake, TimeHops(plan, Exchange::kSendToAwake));
      SKEIN_ASSIGN_OR_RETURN(const auto awake_pairs, Share(awake, partner));
      if (pairs.empty()) continue;  // of a host with one rank
      probed_.curves.push_back(pairs.front().second);
      probed_.curves.push_back(awake_pairs.front().second);
    }
    return absl::OkStatus();
  }

  // Tells all ranks of a host what its pairs took, by the first rank of each.
  absl::StatusOr<std::vector<std::pair<int, ExchangeCurve>>> Share(
      const ExchangeCurve& curve, absl::FunctionRef<int(int)> partner) {
    constexpr size_t kCount = std::size(kSizes);
    std::vector<double> mine, all(mpi_.size() * (kCount + 1));
    for (const topology::ExchangeTime& time : curve.times) {
      mine.push_back(absl::ToDoubleSeconds(time.time));
    }
    mine.push_back(curve.spread);
    const auto bytes = [](std::vector<double>& values) {
      return View{values.data(), DType::kU8, 1,
                  static_cast<int64_t>(values.size() * sizeof(double))};
    };
    SKEIN_RETURN_IF_ERROR(mpi_.world().AllGather(bytes(mine), bytes(all), kHostStream));
    std::vector<std::pair<int, ExchangeCurve>> pairs;
    for (int rank = 0; rank < mpi_.size(); ++rank) {
      const int at = places_.local[rank];
      if (places_.host[rank] != host() || partner(at) <= at) continue;
      const double* const seconds = all.data() + rank * (kCount + 1);
      ExchangeCurve of = {.exchange = curve.exchange, .ranks = curve.ranks};
      for (size_t i = 0; i < kCount; ++i) Add(of, kSizes[i], seconds[i], seconds[kCount]);
      pairs.emplace_back(at, std::move(of));
    }
    return pairs;
  }

  absl::Status TimeAcross() {
    Say("exchanges between hosts");
    for (const AcrossShape& shape : places_.GroupsAcross()) {
      SKEIN_RETURN_IF_ERROR(TimeSums(
          PlanOf(mpi_.size(), shape.ranks(), /*stages=*/false,
                 [&](int rank) { return SeatAcross(places_, rank, shape); }),
          {.ranks = shape.ranks(), .across = true, .ranks_per_host = shape.ranks_per_host}));
    }
    // Pairs of hosts at the same time, and each host in some pair: the slowest one counts, since
    // any may be where a plan cuts.
    ExchangeCurve slowest;
    for (int round = 0; round < 1 + places_.hosts() % 2; ++round) {
      SKEIN_ASSIGN_OR_RETURN(
          const ExchangeCurve hops,
          TimeHops(PlanOf(mpi_.size(), 2, /*stages=*/true, [&](int rank) -> Seat {
            if (places_.local[rank] > 0) return {};
            const int at = places_.host[rank];
            const int other = PartnerIn(round, at, places_.hosts());
            if (other < 0) return {};
            return {std::min(at, other), at < other ? 0 : 1};
          })));
      SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all, GatherCurves(mpi_, hops));
      for (const std::string& json : all) {
        if (json.empty()) continue;
        SKEIN_ASSIGN_OR_RETURN(const ExchangeCurve of, ParseCurve(json));
        if (slowest.times.empty() || of.times.back().time > slowest.times.back().time) slowest = of;
      }
    }
    slowest.across = true;
    probed_.curves.push_back(std::move(slowest));
    return absl::OkStatus();
  }

  comm::MpiRuntime& mpi_;
  const ExchangeProbeOptions& options_;
  const Places places_;
  comm::OperationTracker tracker_;
  std::unique_ptr<kernels::Backend> backend_;
  bool crowded_ = false;  // this host
  ProbedExchanges probed_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> GatherCurves(comm::MpiRuntime& mpi,
                                                      const ExchangeCurve& mine) {
  if (mine.times.empty()) return comm::GatherStrings(mpi.world(), "");
  topology::Topology topology;
  topology.hosts = {{.exchanges = {mine}}};
  return comm::GatherStrings(mpi.world(), convert::TopologyToJson(topology));
}

absl::StatusOr<ExchangeCurve> ParseCurve(const std::string& json) {
  SKEIN_ASSIGN_OR_RETURN(const topology::Topology told, convert::TopologyFromJson(json));
  return told.hosts.front().exchanges.front();
}

absl::StatusOr<ProbedExchanges> ProbeExchanges(comm::MpiRuntime& mpi,
                                               const ExchangeProbeOptions& options) {
  return ExchangeProbe(mpi, options).Run();
}

}  // namespace skein::worker
