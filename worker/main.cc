// worker: one rank of a job. Started by mpirun; driven by the coordinator.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/log/log.h"
#include "base/version.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "worker/bench/bench.h"
#include "worker/rank.h"

namespace {

constexpr const char* kExamples = R"(
Examples:
  mpirun -np 8 worker                             serve the coordinator on 127.0.0.1:50051
  mpirun -np 4 worker --coordinator=head:50051    serve another one
  worker bench --model=synthetic:llama3-1b        measure this machine's CPUs
)";

// CLI11 knows numbers and texts; durations are written as in "60s", "1m30s".
CLI::Option* AddDuration(CLI::App& app, const std::string& name, absl::Duration& value,
                         const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [&value, name](const std::string& text) {
            if (!absl::ParseDuration(text, &value) || value <= absl::ZeroDuration()) {
              throw CLI::ValidationError(name, "'" + text + "' is no duration like 60s or 1m30s");
            }
          },
          help)
      ->type_name("DURATION")
      ->default_str(absl::FormatDuration(value));
}

int JobMain(const skein::worker::RankOptions& options) {
  auto mpi = skein::comm::MpiRuntime::Create();
  if (!mpi.ok()) {
    std::fprintf(stderr, "worker: %s\n", mpi.status().ToString().c_str());
    return 1;
  }
  const absl::Status status = skein::worker::RunRank(options, **mpi);
  if (status.ok()) return 0;
  spdlog::error("{}", status.ToString());
  // Finalizing MPI would wait for ranks that are stuck: leave, and mpirun ends the job.
  _exit(1);
}

int BenchMain(const skein::worker::BenchOptions& options) {
  const absl::Status status = skein::worker::RunBench(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "worker bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "One rank of a Skein job: computes its shard of a model as the coordinator plans it.");
  app.footer(kExamples);
  app.set_version_flag("--version", std::string(skein::kVersion));

  skein::worker::RankOptions options;
  app.add_option("--coordinator", options.coordinator, "where the coordinator listens, HOST:PORT")
      ->capture_default_str();
  app.add_option("--model-root", options.model_root,
                 "folder that holds this node's copy of the model (default: the coordinator's "
                 "path, from the current folder)");
  app.add_option("--backend", options.backend, "cpu, or reference: scalar and slow, for comparison")
      ->check(CLI::IsMember({"cpu", "reference"}))
      ->capture_default_str();
  AddDuration(app, "--orphan-timeout", options.orphan_timeout,
              "end after this long without a coordinator");
  AddDuration(app, "--step-timeout", options.step_timeout,
              "give up when one step, or one exchange between ranks, takes longer");
  app.add_option("--log-level", options.log_level, "how much is logged")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}))
      ->capture_default_str();

  skein::worker::BenchOptions bench;
  CLI::App* bench_command =
      app.add_subcommand("bench", "measure decode, prefill and memory of this machine's CPUs");
  bench_command->add_option("--model", bench.model, "a model folder or synthetic:NAME")
      ->capture_default_str();
  bench_command->add_option("--threads", bench.threads, "0: the cores that this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  bench_command->add_option("--batch", bench.batch, "sequences that decode together")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  bench_command->add_option("--prompt-tokens", bench.prompt_tokens, "length of the prompt")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  bench_command->add_option("--decode-tokens", bench.decode_tokens, "tokens to decode and time")
      ->check(CLI::Range(3, 4096))
      ->capture_default_str();
  bench_command
      ->add_option("--min-read-fraction", bench.min_read_fraction,
                   "fail when decoding reads less than this share of the read bandwidth")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // as every program of Skein
  }
  return bench_command->parsed() ? BenchMain(bench) : JobMain(options);
}
