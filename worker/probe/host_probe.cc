#include "worker/probe/host_probe.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/view.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/cuda_rates.h"
#include "kernels/cuda/cuda_timer.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/cost/device_cost.h"
#include "parallel/cost/stage_cost.h"
#include "parallel/plan/plan.h"
#include "proto/convert/machines_json.h"
#include "topology/cpus.h"
#include "topology/host/cores.h"
#include "topology/host/near_cpus.h"
#include "topology/pci_address.h"
#include "worker/bench/bench_device.h"
#include "worker/core_binding.h"
#include "worker/host_backend.h"
#include "worker/probe/attention_probe.h"
#include "worker/probe/exchange_probe.h"
#include "worker/probe/group_plan.h"
#include "worker/probe/host_links.h"
#include "worker/probe/layer_probe.h"
#include "worker/probe/mean_rates.h"
#include "worker/probe/memory_reads.h"
#include "worker/probe/probe_hooks.h"
#include "worker/probe/samples.h"
#include "worker/probe/sum_probe.h"
#include "worker/probe/token_probe.h"

namespace skein::worker {
namespace {

using topology::Host;
using topology::Origin;

constexpr int64_t kMiB = int64_t{1} << 20;
// Virtual machines show the cache of all of their host.
constexpr int64_t kMostRead = 512 * kMiB;
constexpr int kCopies = 7;
constexpr absl::Duration kMeet = absl::Seconds(20);  // of ranks that measure at once, at most

class HostProbe {
 public:
  HostProbe(comm::MpiRuntime& mpi, const HostProbeOptions& options, topology::Topology& topology)
      : mpi_(mpi), options_(options), topology_(topology), host_(topology.hosts.front()) {}

  absl::Status Run() {
    if (is_gpu()) return Probe();
    // As ranks of a job are bound, where the system allows it, until its plan says how.
    const absl::StatusOr<topology::Cpus> before = topology::AllowedCpus();
    const absl::StatusOr<std::string> bound = BindToCores(mpi_, OneStage());
    const absl::Status probed = Probe();
    if (before.ok() && bound.ok() && !bound->empty()) topology::BindThreads(*before).IgnoreError();
    return probed;
  }

 private:
  absl::Status Probe() {
    if (is_gpu()) {
      SKEIN_RETURN_IF_ERROR(ProbeGpu());
    } else {
      SKEIN_RETURN_IF_ERROR(ProbeCores());
    }
    SKEIN_ASSIGN_OR_RETURN(ProbedExchanges exchanges,
                           ProbeExchanges(mpi_, {.device = options_.device,
                                                 .device_comm = options_.device_comm,
                                                 .cores = host_.cores,
                                                 .progress = options_.progress}));
    host_.exchanges = std::move(exchanges.curves);
    SetLinks(exchanges.pairs, host_);
    SetFabric();
    if (mpi_.size() == 1 || (!is_gpu() && !exchanges.crowded)) return absl::OkStatus();
    absl::StatusOr<BenchDevice> device = is_gpu() ? Gpu() : Cores();
    SKEIN_RETURN_IF_ERROR(Agree(device.status()));
    SKEIN_RETURN_IF_ERROR(ProbeSumsOfSteps(*device));
    return is_gpu() ? ProbeTokens(exchanges.pairs, *device) : absl::OkStatus();
  }

  // Whose shards are the ranks of a host.
  plan::Plan OneStage() const {
    const Places places(mpi_);
    plan::Plan plan;
    for (int rank = 0; rank < mpi_.size(); ++rank) {
      plan.ranks.push_back({.rank = rank,
                            .dp_rank = places.host[rank],
                            .tp_rank = places.local[rank],
                            .threads = options_.threads});
    }
    return plan;
  }

  bool is_gpu() const { return options_.device.device.kind == DeviceKind::kCuda; }
  bool first_of_host() const { return mpi_.local_rank() == 0; }
  absl::Status Agree(const absl::Status& mine) { return comm::FirstError(mpi_.world(), mine); }
  void Say(std::string_view what) const {
    if (options_.progress) options_.progress(what);
  }

  // --- Cores ---

  // As ranks compute: beside each other, but only as many as have cores of their own. What shares a
  // core is slower by what the share says.
  absl::Status ProbeCores() {
    const bool measures = mpi_.local_rank() < MeasuringRanks();
    SKEIN_ASSIGN_OR_RETURN(beside_, mpi_.Split(measures ? mpi_.host_of(mpi_.rank()) : -1, 0,
                                               "ranks that measure cores"));
    if (beside_ != nullptr) beside_->set_timeout(kMeet);
    SKEIN_RETURN_IF_ERROR(Agree(measures ? ProbeLayersOfCores() : absl::OkStatus()));
    SKEIN_RETURN_IF_ERROR(Agree(measures ? ProbeContextsOfCores() : absl::OkStatus()));
    const std::vector<int64_t> sizes = WorkingSets();
    TimedReads alone{.bytes_per_s = std::vector<double>(sizes.size())};
    SKEIN_RETURN_IF_ERROR(Agree(first_of_host() ? ReadAlone(sizes, alone) : absl::OkStatus()));
    TimedReads together = alone;
    SKEIN_RETURN_IF_ERROR(Agree(measures ? ReadTogether(sizes, together) : absl::OkStatus()));
    host_.core_rates.reads = ReadRates(sizes, alone, together);
    if (measures) ReadBehindOthers();
    reads_.reset();
    host_.core_rates.spread = std::max({host_.core_rates.spread, alone.spread, together.spread});
    return ShareCoreRates(measures);
  }

  // Where a rank does not come in time, as one that has failed, the others go on without meeting.
  void Meet() const {
    if (beside_ != nullptr) beside_->Barrier(kHostStream).IgnoreError();
  }
  ProbeHooks Hooks() const {
    return {.progress = options_.progress, .meet = [this] { Meet(); }};
  }

  int64_t MeasuringRanks() const {
    return std::clamp<int64_t>(host_.cores / options_.threads, 1, mpi_.local_size());
  }

  absl::StatusOr<BenchDevice> Cores() {
    BenchDevice device{.device = options_.device, .threads = options_.threads};
    SKEIN_ASSIGN_OR_RETURN(device.backend, MakeHostBackend(options_.threads));
    return device;
  }

  absl::Status ProbeLayersOfCores() {
    SKEIN_ASSIGN_OR_RETURN(BenchDevice device, Cores());
    // They share caches, and what is beyond them.
    SKEIN_ASSIGN_OR_RETURN(
        host_.core_rates,
        ProbeLayers(device, {.cache_bytes = host_.l3_bytes / MeasuringRanks(), .hooks = Hooks()}));
    return absl::OkStatus();
  }

  absl::Status ProbeContextsOfCores() {
    SKEIN_ASSIGN_OR_RETURN(BenchDevice device, Cores());
    // What caches keep of sets beyond them is little, and time is short.
    const int64_t beyond = std::max(4 * host_.l3_bytes / MeasuringRanks(), 64 * kMiB);
    SKEIN_ASSIGN_OR_RETURN(
        ProbedAttention probed,
        ProbeAttention(device,
                       {.most_bytes = std::min(beyond, WorkingSets().back()), .hooks = Hooks()}));
    host_.core_rates.attention = std::move(probed.rates);
    host_.core_rates.spread = std::max(host_.core_rates.spread, probed.spread);
    return absl::OkStatus();
  }

  // Makes this rank's rates the mean of those of its host that have measured.
  absl::Status ShareCoreRates(bool measured) {
    topology::Topology told;
    told.hosts = {{.name = "host", .cores = 1, .core_rates = host_.core_rates}};
    SKEIN_ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        comm::GatherStrings(mpi_.world(), measured ? convert::TopologyToJson(told) : ""));
    std::vector<topology::DeviceRates> of_host;
    absl::Status status;
    for (int rank = 0; rank < mpi_.size(); ++rank) {
      if (mpi_.host_of(rank) != mpi_.host_of(mpi_.rank()) || all[rank].empty()) continue;
      const absl::StatusOr<topology::Topology> of_rank = convert::TopologyFromJson(all[rank]);
      status.Update(of_rank.status());
      if (of_rank.ok()) of_host.push_back(of_rank->hosts[0].core_rates);
    }
    SKEIN_RETURN_IF_ERROR(Agree(status));
    host_.core_rates = MeanRates(of_host);
    return absl::OkStatus();
  }

  // Of a rank. The largest is beyond caches.
  std::vector<int64_t> WorkingSets() {
    const int64_t ranks = mpi_.local_size();
    const int64_t cache = host_.l3_bytes / ranks;
    // Memory takes long to touch: eight times small caches, four times large ones.
    const int64_t beyond =
        std::max({128 * kMiB, std::min(8 * cache, 256 * kMiB), std::min(4 * cache, kMostRead)});
    const int64_t most = std::clamp(host_.memory_bytes / 8 / ranks, 128 * kMiB, beyond);
    return {kMiB, 4 * kMiB, 8 * kMiB, 16 * kMiB, 32 * kMiB, 64 * kMiB, most / kMiB * kMiB};
  }

  absl::Status ReadAlone(const std::vector<int64_t>& sizes, TimedReads& timed) {
    return Read(sizes, 1, {.progress = options_.progress}, timed);
  }
  absl::Status ReadTogether(const std::vector<int64_t>& sizes, TimedReads& timed) {
    return Read(sizes, options_.threads, Hooks(), timed);
  }
  // As ranks do that take turns on a core.
  void ReadBehindOthers() {
    const int32_t ranks = mpi_.local_size();
    const double sets = cost::ShareOfCores(host_.cores, options_.threads, ranks, ranks).sets;
    if (sets == 1) return;
    Say("reads behind those of other ranks");
    const auto turns_of_others = [&](int64_t bytes) {
      for (int other = 1; other < sets; ++other) {
        const absl::Time end = absl::Now() + cost::kTurn;
        do {
          reads_->Pass(bytes, other * bytes);
        } while (absl::Now() < end);
      }
    };
    TimeReadsBehind(
        options_.threads, Hooks(), [this](int64_t bytes) { return reads_->Pass(bytes); },
        turns_of_others, host_.core_rates.reads);
  }
  absl::Status Read(const std::vector<int64_t>& sizes, int threads, const ProbeHooks& hooks,
                    TimedReads& timed) {
    if (reads_ == std::nullopt || reads_->threads() != threads) {
      reads_.reset();
      SKEIN_ASSIGN_OR_RETURN(reads_, kernels::ReadProbe::Create(threads, sizes.back(),
                                                                topology::CoresOfThreads(threads)));
    }
    timed = TimeReads(sizes, threads, hooks, [this](int64_t bytes) { return reads_->Pass(bytes); });
    return absl::OkStatus();
  }

  // --- GPUs ---

  // All at the same time: they share no memory. Each rank tells the others of its own.
  absl::Status ProbeGpu() {
    topology::Gpu* const gpu = GpuAt(options_.device.pci_address);
    SKEIN_RETURN_IF_ERROR(Agree(MeasureGpu(gpu)));
    return ShareGpu(*gpu);
  }

  absl::Status MeasureGpu(topology::Gpu* gpu) {
    if (gpu == nullptr) {
      return absl::InternalError(absl::StrCat("the GPU at ", options_.device.pci_address,
                                              " is not among those that were found"));
    }
    Say("reads and products");
    SKEIN_ASSIGN_OR_RETURN(const kernels::CudaRates ceilings,
                           kernels::MeasureCudaRates(options_.device.gpu));
    SKEIN_ASSIGN_OR_RETURN(BenchDevice device, Gpu());
    SKEIN_ASSIGN_OR_RETURN(gpu->rates, ProbeLayers(device, {.hooks = Hooks()}));
    SKEIN_ASSIGN_OR_RETURN(ProbedAttention probed, ProbeAttention(device, {.hooks = Hooks()}));
    gpu->rates.attention = std::move(probed.rates);
    gpu->rates.spread = std::max(gpu->rates.spread, probed.spread);
    gpu->rates.reads = {{gpu->memory_bytes, ceilings.read_bytes_per_s, ceilings.read_bytes_per_s}};
    return TimeCopies(*gpu);
  }

  topology::Gpu* GpuAt(const std::string& pci_address) {
    for (topology::Gpu& gpu : host_.interconnect.gpus) {
      if (topology::PciAddress(gpu.bus_id) == topology::PciAddress(pci_address)) return &gpu;
    }
    return nullptr;
  }

  // Copies between pinned memory and the device, small and large.
  absl::Status TimeCopies(topology::Gpu& gpu) {
    Say("copies between host and device");
    constexpr int64_t kSmall = 4096;
    constexpr int64_t kLarge = 64 * kMiB;
    SKEIN_ASSIGN_OR_RETURN(const auto copies, kernels::MakeCudaCopies(options_.device.gpu));
    SKEIN_ASSIGN_OR_RETURN(const auto timer, kernels::MakeCudaTimer(options_.device.gpu));
    SKEIN_ASSIGN_OR_RETURN(void* const memory, timer->Memory(kLarge));
    SKEIN_ASSIGN_OR_RETURN(const absl::Span<std::byte> pinned, copies->Buffer(kLarge));
    const auto wait = [] { return absl::OkStatus(); };
    double spread = 0;
    const auto time = [&](int64_t bytes, bool back) -> absl::StatusOr<double> {
      std::vector<double> seconds;
      const View device = {memory, DType::kU8, 1, bytes};
      for (int i = 0; i < kCopies; ++i) {
        const absl::Time begin = absl::Now();
        SKEIN_RETURN_IF_ERROR(back
                                  ? copies->ToHost(device, pinned.data(), timer->stream(), wait)
                                  : copies->ToDevice(pinned.data(), device, timer->stream(), wait));
        seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
      }
      const Sampled sampled = Summarise(std::move(seconds));
      spread = std::max(spread, sampled.spread);
      return sampled.median;
    };
    double latency = 0, slowest = 0;
    for (const bool back : {false, true}) {
      SKEIN_ASSIGN_OR_RETURN(const double small, time(kSmall, back));
      SKEIN_ASSIGN_OR_RETURN(const double large, time(kLarge, back));
      latency = std::max(latency, small);
      slowest = std::max(slowest, std::max(large - small, large / 2));
    }
    gpu.to_host = {Origin::kMeasured, absl::Seconds(latency),
                   static_cast<double>(kLarge - kSmall) / slowest, spread};
    return absl::OkStatus();
  }

  absl::Status ShareGpu(const topology::Gpu& mine) {
    topology::Topology alone;
    alone.hosts = {{.name = "host", .cores = 1}};
    alone.hosts[0].interconnect.gpus = {mine};
    alone.hosts[0].interconnect.connections = {{{}}};
    SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           comm::GatherStrings(mpi_.world(), convert::TopologyToJson(alone)));
    for (int rank = 0; rank < mpi_.size(); ++rank) {
      if (mpi_.host_of(rank) != mpi_.host_of(mpi_.rank())) continue;
      SKEIN_ASSIGN_OR_RETURN(const topology::Topology told, convert::TopologyFromJson(all[rank]));
      const topology::Gpu& other = told.hosts[0].interconnect.gpus[0];
      if (topology::Gpu* const gpu = GpuAt(other.bus_id)) {
        gpu->rates = other.rates;
        gpu->to_host = other.to_host;
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<BenchDevice> Gpu() {
    BenchDevice device{.device = options_.device, .threads = options_.threads};
    SKEIN_ASSIGN_OR_RETURN(device.backend, kernels::MakeCudaBackend({.device = options_.device.gpu,
                                                                     .threads = options_.threads}));
    return device;
  }

  // What hosts take to return tokens, over two ranks of each host and over two hosts. Messages
  // between cores are measured as hosts wait for them; a GPU's host has more to do.
  absl::Status ProbeTokens(const std::vector<PairRate>& pairs, BenchDevice& device) {
    Say("tokens from the last stage to the first");
    const Places places(mpi_);
    const auto probe = [&](bool across, const topology::LinkRate& hop) -> absl::Status {
      const plan::Plan plan = PlanOf(mpi_.size(), 2, /*stages=*/true, [&](int rank) -> Seat {
        const int host = places.host[rank], local = places.local[rank];
        if (across) return local == 0 && host < 2 ? Seat{0, host} : Seat{};
        return local < 2 ? Seat{host, local} : Seat{};
      });
      SKEIN_ASSIGN_OR_RETURN(
          topology::ExchangeCurve curve,
          ProbeTokenReturn(mpi_, device,
                           {.plan = plan, .device_comm = options_.device_comm, .hop = hop}));
      curve.across = across;
      if (across) {
        SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all, GatherCurves(mpi_, curve));
        SKEIN_ASSIGN_OR_RETURN(curve, ParseCurve(all.front()));
      }
      if (!curve.times.empty()) host_.exchanges.push_back(std::move(curve));
      return absl::OkStatus();
    };
    if (places.most_local() > 1) {
      const auto first = std::find_if(pairs.begin(), pairs.end(), [](const PairRate& pair) {
        return pair.first == 0 && pair.second == 1;
      });
      // A host with one rank has none, and idles.
      SKEIN_RETURN_IF_ERROR(
          probe(/*across=*/false, first == pairs.end() ? topology::LinkRate{} : first->rate));
    }
    return places.hosts() > 1 ? probe(/*across=*/true, topology_.fabric.link) : absl::OkStatus();
  }

  // --- Both ---

  absl::Status ProbeSumsOfSteps(BenchDevice& device) {
    const Places places(mpi_);
    for (const int size : places.GroupSizes()) {
      if (!CanProbeSums(size)) continue;
      SKEIN_RETURN_IF_ERROR(ProbeSumsOf(size, /*alone=*/false, places, device));
      if (is_gpu() || size == places.most_local()) continue;
      // Stages that wait poll meanwhile.
      const absl::Duration spin = mpi_.world().spin();
      mpi_.world().set_spin(kMeet);
      const absl::Status probed = ProbeSumsOf(size, /*alone=*/true, places, device);
      mpi_.world().set_spin(spin);
      SKEIN_RETURN_IF_ERROR(probed);
    }
    return absl::OkStatus();
  }

  // Groups of a host at the same time, as replicas compute, or the first one `alone`.
  absl::Status ProbeSumsOf(int size, bool alone, const Places& places, BenchDevice& device) {
    Say(absl::StrCat("sums of steps of ", size, " ranks", alone ? " alone" : ""));
    SumProbeOptions options = {
        .plan = PlanOf(mpi_.size(), size, /*stages=*/false,
                       [&](int rank) { return SeatOnHost(places, rank, size, alone); }),
        .ranks = size,
        .device_comm = options_.device_comm};
    if (!is_gpu()) {
      options.core_cache_bytes = host_.l2_bytes;
      const int32_t ranks = mpi_.local_size();
      const int32_t active = alone ? size : ranks / size * size;
      options.has_core = mpi_.local_rank() < MeasuringRanks();
      options.ranks_of_a_core =
          1 / cost::ShareOfCores(host_.cores, options_.threads, ranks, active).of_a_core;
    }
    SKEIN_ASSIGN_OR_RETURN(topology::ExchangeCurve mine, ProbeSums(mpi_, device, options));
    mine.alone = alone;
    SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all, GatherCurves(mpi_, mine));
    const std::string& of_host = all[places.FirstOf(mpi_.host_of(mpi_.rank()))];
    if (of_host.empty()) return absl::OkStatus();
    SKEIN_ASSIGN_OR_RETURN(const topology::ExchangeCurve of_steps, ParseCurve(of_host));
    SetSumsOfSteps(of_steps, host_.exchanges);
    return absl::OkStatus();
  }

  // --- Links ---

  void SetFabric() {
    for (const topology::ExchangeCurve& curve : host_.exchanges) {
      if (!curve.across || curve.exchange != topology::Exchange::kSendReceive) continue;
      topology_.fabric.link = LinkOfMessages(curve);
    }
  }

  comm::MpiRuntime& mpi_;
  const HostProbeOptions& options_;
  topology::Topology& topology_;
  Host& host_;
  std::unique_ptr<comm::Communicator> beside_;  // who measures cores at once; or null
  std::optional<kernels::ReadProbe> reads_;     // of the largest working set
};

}  // namespace

absl::Status ProbeHosts(comm::MpiRuntime& mpi, const HostProbeOptions& options,
                        topology::Topology& topology) {
  return HostProbe(mpi, options, topology).Run();
}

}  // namespace skein::worker
