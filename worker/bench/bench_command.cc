#include "worker/bench/bench_command.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/bench/report.h"
#include "base/device_kind.h"
#include "base/flags/flags.h"
#include "base/flags/parse_device_kind.h"
#include "parallel/plan/plan.h"
#include "worker/bench/comm_bench.h"
#include "worker/bench/kernel_bench.h"
#include "worker/bench/model_bench.h"
#include "worker/device.h"
#include "worker/device_comm.h"

namespace skein::worker {
namespace {

// What a run of this takes is minutes on a GPU, and more on CPUs.
constexpr int32_t kMostTokens = 1 << 20;
constexpr int32_t kMostSequences = 1024;

void AddDevice(CLI::App& command, std::optional<DeviceKind>& device) {
  AddParsed(command, "--device", device, ParseDeviceKind, "cpu or cuda")
      ->default_str("as of a rank");
}

void AddJson(CLI::App& command, std::string& file) {
  command
      .add_option("--json", file,
                  "write the rows, the machine and its ceilings into this file; -: print them "
                  "behind the table")
      ->check(NotEmpty());
}

void AddThreads(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "of CPUs; 0: the cores that this process may use")
      ->check(InRange(0, 1024))
      ->capture_default_str();
}

// "1,8,64": a row each.
void AddList(CLI::App& command, const char* name, std::vector<int32_t>& list, int32_t most,
             const char* help) {
  command.add_option(name, list, help)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(InRange(1, most))
      ->capture_default_str();
}

void AddModel(CLI::App& command, ModelBenchOptions& options) {
  AddProfile(command, options.device.profile_steps);
  AddDecodeForm(command, options.device.decode);
  AddDevice(command, options.device.device);
  AddJson(command, options.json_file);
  AddThreads(command, options.device.threads);
  AddParsed(command, "--layout", options.ranks.layout, plan::ParseLayoutRequest,
            "with ranks that mpirun starts: \"tp=2,pp=2\", or, to decode a sequence or more each, "
            "\"dp=2\"")
      ->default_str("all ranks are shards");
  command.add_flag("--oversubscribe-devices", options.ranks.oversubscribe_devices,
                   "let ranks share GPUs: to try out layouts, not for speed");
  AddParsed(command, "--device-comm", options.ranks.device_comm, ParseDeviceComm,
            "as of a rank: auto, nccl, peers or host")
      ->default_str("auto");
  command.add_option("--model", options.model, "a model folder, a GGUF file or synthetic:NAME")
      ->check(NotEmpty())
      ->capture_default_str();
  command.add_flag("--deterministic", options.deterministic,
                   "on GPUs: as coordinators that are given this flag plan it");
  command
      .add_option("--min-fraction", options.min_fraction,
                  "fail when a row reaches less than this share of its ceiling")
      ->check(InRange(0.0, 1.0))
      ->capture_default_str();
}

}  // namespace

void AddProfile(CLI::App& app, int& steps) {
  app.add_option("--profile", steps,
                 "on GPUs: run the first STEPS steps kernel by kernel, without graphs, with NVTX "
                 "ranges by layer and operation, for nsys and for ncu's --nvtx-include='layer "
                 "3/attention'")
      ->type_name("STEPS")
      ->check(InRange(1, 1000000));
}

void AddDecodeForm(CLI::App& app, kernels::DecodeForm& form) {
  AddParsed(
      app, "--decode", form, ParseDecodeForm,
      "on GPUs, how steps of up to 16 rows are computed: persistent, by one kernel that runs "
      "all of a step, where it can; graph, as larger ones; or auto: by what was the faster in "
      "the warm-up")
      ->default_str("auto");
}

struct BenchCommand::Flags {
  CLI::App* bench = nullptr;
  CLI::App* decode = nullptr;
  CLI::App* prefill = nullptr;
  CLI::App* kernels = nullptr;
  CLI::App* comm = nullptr;
  DecodeBenchOptions decode_options;
  PrefillBenchOptions prefill_options;
  KernelBenchOptions kernel_options;
  CommBenchOptions comm_options;
};

BenchCommand::BenchCommand(CLI::App& app) : flags_(std::make_unique<Flags>()) {
  Flags& f = *flags_;
  f.bench = app.add_subcommand("bench",
                               "measure this machine's GPU or CPUs, beside what they give at best");
  f.bench->require_subcommand(1);

  f.decode = f.bench->add_subcommand("decode", "steps of decoding, held against reading memory");
  AddModel(*f.decode, f.decode_options.of);
  AddList(*f.decode, "--batch", f.decode_options.batches, kMostSequences,
          "sequences that decode together; 1,8,64 makes three rows");
  f.decode
      ->add_option("--prompt-tokens", f.decode_options.prompt_tokens,
                   "of each sequence, before the steps that are timed")
      ->check(InRange(1, kMostTokens))
      ->capture_default_str();
  f.decode
      ->add_option("--decode-tokens", f.decode_options.steps,
                   "steps to time, by which contexts grow")
      ->check(InRange(4, kMostTokens))
      ->default_str("512; on CPUs 16");
  AddParsed(*f.decode, "--kv-dtype", f.decode_options.kv_dtype, plan::ParseKvDType,
            "how keys and values are kept, as a coordinator's --kv-dtype has it")
      ->default_str("as they are computed");

  f.prefill = f.bench->add_subcommand("prefill", "prompts, held against multiplying matrices");
  AddModel(*f.prefill, f.prefill_options.of);
  AddList(*f.prefill, "--prompt-tokens", f.prefill_options.prompt_tokens, kMostTokens,
          "of the prompt; 512,2048 makes two rows");

  f.kernels = f.bench->add_subcommand("kernels", "each kernel alone");
  AddDevice(*f.kernels, f.kernel_options.device);
  AddJson(*f.kernels, f.kernel_options.json_file);
  AddThreads(*f.kernels, f.kernel_options.threads);
  f.kernels->add_option("--only", f.kernel_options.only, "only rows whose name holds this")
      ->check(NotEmpty());

  f.comm = f.bench->add_subcommand("comm",
                                   "sums and hops between ranks: mpirun -np 2 worker bench comm");
  AddDevice(*f.comm, f.comm_options.device);
  AddJson(*f.comm, f.comm_options.json_file);
  f.comm->add_flag("--oversubscribe-devices", f.comm_options.oversubscribe_devices,
                   "let ranks share GPUs");
}

BenchCommand::~BenchCommand() = default;

bool BenchCommand::parsed() const { return flags_->bench->parsed(); }

int BenchCommand::Run(bool started_by_mpirun) const {
  Flags& f = *flags_;
  f.decode_options.of.ranks.started = started_by_mpirun;
  f.prefill_options.of.ranks.started = started_by_mpirun;
  absl::Status status;
  if (f.decode->parsed()) status = RunDecodeBench(f.decode_options);
  if (f.prefill->parsed()) status = RunPrefillBench(f.prefill_options);
  if (f.kernels->parsed()) status = RunKernelBench(f.kernel_options);
  if (f.comm->parsed()) status = RunCommBench(f.comm_options);
  if (status.ok()) return kExitOk;
  ShowProgress("");
  std::fprintf(stderr, "worker bench: %s\n", std::string(status.message()).c_str());
  if (f.comm->parsed() || started_by_mpirun) _exit(kExitError);  // MPI is up
  return kExitError;
}

}  // namespace skein::worker
