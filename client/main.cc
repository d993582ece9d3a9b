// skein: the command line of a coordinator's clients.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/deadlock_detection.h"
#include "base/flags/config.h"
#include "base/flags/flags.h"
#include "base/flags/mutual_tls_flags.h"
#include "base/tls/mutual_tls.h"
#include "base/version.h"
#include "client/admin.h"
#include "client/chat.h"
#include "client/convert.h"
#include "client/doctor.h"
#include "client/endpoint.h"
#include "client/generate.h"
#include "client/inspect.h"
#include "client/keys.h"
#include "client/load/bench_serve.h"
#include "client/memory.h"
#include "client/plan.h"
#include "client/quantize.h"
#include "client/read_topology.h"
#include "client/scale/bench_scale.h"
#include "client/serve/serve.h"
#include "client/status.h"
#include "client/top.h"
#include "client/topo.h"
#include "client/worker_command.h"

namespace skein::client {
namespace {

// A command whose output was lost has failed, as on a full disk.
int CheckOutput(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "skein: output was lost: is the disk full, or has its reader gone?\n");
  return code == 0 ? 1 : code;
}

// Whether the command asks a coordinator about machines.
bool IsLive(const PlanFlags& flags, const CLI::App& plan) {
  return plan.parsed() && flags.AsksCoordinator();
}
bool IsLive(const TopoFlags& flags, const CLI::App& topo) {
  return topo.parsed() && flags.topology.source == kLive;
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Makes files that no flags name those of the environment. Returns the exit code where some of
// these are missing, and says so.
int FindTls(MutualTlsFiles& files) {
  if (files.given()) return kExitOk;
  files = {Variable("SKEIN_TLS_CERT"), Variable("SKEIN_TLS_KEY"), Variable("SKEIN_TLS_CA")};
  const int set = !files.certificate.empty() + !files.key.empty() + !files.ca.empty();
  if (set == 0 || set == 3) return kExitOk;
  std::fputs("skein: of SKEIN_TLS_CERT, SKEIN_TLS_KEY and SKEIN_TLS_CA all are set, or none\n",
             stderr);
  return kExitUsage;
}

// Reads them; an endpoint without such files has no TLS.
int LoadTls(MutualTlsFiles files, Endpoint& endpoint) {
  if (const int code = FindTls(files); code != kExitOk || !files.given()) return code;
  absl::StatusOr<MutualTls> loaded = LoadMutualTls(files, absl::Now());
  if (loaded.ok()) {
    endpoint.tls = *std::move(loaded);
    return kExitOk;
  }
  std::fprintf(stderr, "skein: %s\n", std::string(loaded.status().message()).c_str());
  return kExitError;
}

bool IsHelp(const std::string& argument) { return argument == "--help" || argument == "-h"; }

int Main(int argc, char** argv) {
  StopDeadlockDetection();
  CLI::App app(
      "Asks a Skein coordinator for text, state and models; plans and measures without one.");
  app.name("skein");
  app.set_version_flag("--version", std::string(kVersion));
  app.require_subcommand(1);
  app.fallthrough();
  std::string coordinator = "127.0.0.1:50051";
  const CLI::Option* named = AddAddress(app, "--coordinator", coordinator, "The coordinator");
  MutualTlsFiles tls;
  AddMutualTls(app, tls);
  app.footer(
      "`skein COMMAND --help` explains a command.\n"
      "Exit status: 0 done, 1 failed, 2: the command line is wrong.\n"
      "Environment: SKEIN_TLS_CERT, SKEIN_TLS_KEY and SKEIN_TLS_CA stand for the flags --tls-cert, "
      "--tls-key\nand --tls-ca where these are not given, but not with `serve`.");

  ServeFlags serve_flags;
  CLI::App* serve = app.add_subcommand(
      "serve", "Serve a model on this host: a coordinator with HTTP, and its workers");
  DeclareServe(*serve, serve_flags);
  serve->fallthrough(false)->allow_extras();

  GenerateFlags generate_flags;
  CLI::App* generate = app.add_subcommand("generate", "Continue a prompt; the text streams");
  DeclareGenerate(*generate, generate_flags);

  ChatFlags chat_flags;
  CLI::App* chat = app.add_subcommand("chat", "Talk to the model; answers stream");
  DeclareChat(*chat, chat_flags);

  StatusFlags status_flags;
  CLI::App* status = app.add_subcommand("status", "Show plan, ranks and speed");
  DeclareStatus(*status, status_flags);

  TopFlags top_flags;
  CLI::App* top =
      app.add_subcommand("top", "Show what the cluster does on the whole terminal, every second");
  DeclareTop(*top, top_flags);

  bool models_json = false;
  CLI::App* models = app.add_subcommand("models", "List what is served");
  models->add_flag("--json", models_json, "Print JSON");

  ModelFlags model_flags;
  CLI::App* model = app.add_subcommand("model", "Change or show what is served: add, remove, list");
  DeclareModel(*model, model_flags);

  DrainFlags drain_flags;
  CLI::App* drain = app.add_subcommand("drain", "End a job once its requests have ended");
  DeclareDrain(*drain, drain_flags);

  PlanFlags plan_flags;
  CLI::App* plan = app.add_subcommand(
      "plan",
      "Plan a job before it is started: on this host, on the hosts of a cluster, or for others");
  DeclarePlan(*plan, plan_flags);

  MemoryFlags memory_flags;
  CLI::App* memory = app.add_subcommand(
      "memory", "Show what a model needs of each rank, layout by layout, without any machine");
  DeclareMemory(*memory, memory_flags);

  InspectFlags inspect_flags;
  CLI::App* inspect =
      app.add_subcommand("inspect", "Show what a model's files hold, and whether Skein runs them");
  DeclareInspect(*inspect, inspect_flags);

  ConvertFlags convert_flags;
  CLI::App* convert = app.add_subcommand("convert", "Write a model's folder as a GGUF file");
  DeclareConvert(*convert, convert_flags);

  QuantizeFlags quantize_flags;
  CLI::App* quantize =
      app.add_subcommand("quantize", "Write a model with fewer bits a weight, as a GGUF file");
  DeclareQuantize(*quantize, quantize_flags);

  KeysFlags keys_flags;
  CLI::App* keys = app.add_subcommand(
      "keys", "Change or show a coordinator's file of API keys: add, list, remove");
  DeclareKeys(*keys, keys_flags);

  TopoFlags topo_flags;
  CLI::App* topo = app.add_subcommand(
      "topo", "Show machines: how GPUs and NICs are connected, and what they do in a second");
  DeclareTopo(*topo, topo_flags);

  DoctorFlags doctor_flags;
  CLI::App* doctor = app.add_subcommand(
      "doctor", "Look for what is wrong with hosts, before anything is loaded, and say what to do");
  DeclareDoctor(*doctor, doctor_flags);

  std::string worker;
  CLI::App* bench = app.add_subcommand(
      "bench",
      "Measure this machine, without a coordinator: decode, prefill, kernels or comm, which the "
      "worker program does. Or `bench serve`: load a coordinator; or `bench scale`: how steps "
      "scale with ranks");
  const CLI::Option* worker_named =
      bench->add_option("--worker", worker, "The worker program; default: beside this one");
  BenchServeFlags bench_serve_flags;
  CLI::App* bench_serve =
      bench->add_subcommand("serve", "Load a coordinator; show latencies, throughput and goodput");
  bench_serve->fallthrough(false);
  BenchScaleFlags scale_flags;
  CLI::App* scale = bench->add_subcommand(
      "scale", "Steps with 1, 2, ... ranks of this host, or of several: predicted, then measured");
  scale->fallthrough(false);
  DeclareBenchScale(*scale, scale_flags);
  // `bench` takes what it does not know, so that the coordinator is named here once more.
  AddAddress(*bench_serve, "--coordinator", coordinator, "The coordinator");
  AddMutualTls(*bench_serve, tls);
  DeclareBenchServe(*bench_serve, bench_serve_flags);
  bench->footer("`skein bench COMMAND --help` explains a command. Those of `worker bench` are:");
  bench->set_help_flag();
  bench->fallthrough(false)->allow_extras();

  CLI::App* perplexity = app.add_subcommand(
      "perplexity", "Measure how well a model foretells a text, and how far it is from another");
  CLI::App* imatrix = app.add_subcommand(
      "imatrix",
      "Measure how large inputs are on a text, so that `quantize` errs where they are not");
  for (CLI::App* command : {perplexity, imatrix}) {
    command->add_option("--worker", worker, "The worker program; default: beside this one");
    command->footer(
        absl::StrCat("The worker program does it. This is `worker ", command->get_name(), "`:"));
    command->set_help_flag();
    command->fallthrough(false)->allow_extras();
  }
  app.callback([&] {
    if (bench_serve->parsed() && OnCommandLine(app, *worker_named)) {
      throw CLI::ValidationError(worker_named->get_name(), "`bench serve` starts no worker");
    }
    for (const CLI::App* own : {bench_serve, scale}) {
      if (!own->parsed() || bench->remaining_size() == 0) continue;
      throw CLI::ValidationError(absl::StrCat("flags of `bench ", own->get_name(),
                                              "` stand behind `", own->get_name(),
                                              "`, not: ", absl::StrJoin(bench->remaining(), " ")));
    }
    // Unknown flags are the coordinator's: a value that stands apart would be the model.
    if (serve->parsed() && argc > 2 && argv[2][0] == '-' && serve->remaining_size() > 0 &&
        OnCommandLine(app, *serve->get_option("MODEL"))) {
      throw CLI::ValidationError("MODEL", "stands before flags of the coordinator");
    }
    TellGivenFlags(*plan, plan_flags);
    const bool live = IsLive(plan_flags, *plan) || IsLive(topo_flags, *topo);
    const bool emits = plan->parsed() && plan_flags.rank.emit.has_value();  // for what it starts
    const bool names_one =
        OnCommandLine(app, *named) || (OnCommandLine(app, *app.get_option("--tls-cert")) && !emits);
    if (names_one && !live &&
        (plan->parsed() || memory->parsed() || inspect->parsed() || convert->parsed() ||
         quantize->parsed() || topo->parsed() || doctor->parsed() || perplexity->parsed() ||
         imatrix->parsed() || keys->parsed() || (bench->parsed() && !bench_serve->parsed()))) {
      throw CLI::ValidationError(named->count() > 0 ? named->get_name() : "--tls-cert",
                                 "this command asks no coordinator");
    }
    plan_flags.coordinator_is_named = names_one;
  });

  // `skein serve ... -- FLAGS of the workers`.
  int own = argc;
  if (argc > 1 && std::string_view(argv[1]) == serve->get_name()) {
    own = static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
    serve_flags.worker_flags.assign(argv + std::min(own + 1, argc), argv + argc);
  }
  if (const std::optional<int> code = ParseCommandLine(app, own, argv)) return *code;
  if (serve->parsed()) {
    serve_flags.coordinator_flags = serve->remaining();
    serve_flags.coordinator_config = FindConfigFor(app, "coordinator");
    serve_flags.worker_config = FindConfigFor(app, "worker");
    return Serve(serve_flags);
  }
  Endpoint endpoint{.address = coordinator};
  if (generate->parsed() || chat->parsed() || status->parsed() || top->parsed() ||
      models->parsed() || model->parsed() || drain->parsed() || bench_serve->parsed() ||
      IsLive(plan_flags, *plan) || IsLive(topo_flags, *topo)) {
    const int code = LoadTls(tls, endpoint);
    // A plan that was not told of a coordinator does without.
    const bool does_without = plan->parsed() && plan_flags.rank.topology.source != kLive &&
                              !plan_flags.coordinator_is_named;
    if (code != kExitOk && !does_without) return code;
    plan_flags.this_host |= code != kExitOk;
  }
  if (generate->parsed()) return Generate(endpoint, generate_flags);
  if (chat->parsed()) return Chat(endpoint, chat_flags);
  if (status->parsed()) return Status(endpoint, status_flags);
  if (top->parsed()) return Top(endpoint, top_flags);
  if (models->parsed()) return Models(endpoint, models_json);
  if (model->parsed()) {
    model_flags.model_flags = model_flags.add->remaining();
    return Model(endpoint, model_flags);
  }
  if (drain->parsed()) return Drain(endpoint, drain_flags);
  plan_flags.rank.topology.coordinator = topo_flags.topology.coordinator = endpoint;
  if (plan->parsed() && plan_flags.rank.emit) {
    if (const int code = FindTls(tls); code != kExitOk) return code;
  }
  plan_flags.rank.launch.tls = tls;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    plan_flags.rank.topology.visible_devices = topo_flags.topology.visible_devices = visible;
  }
  if (plan->parsed()) return Plan(plan_flags);
  if (memory->parsed()) return Memory(memory_flags);
  if (inspect->parsed()) return Inspect(inspect_flags);
  if (convert->parsed()) return Convert(convert_flags);
  if (quantize->parsed()) return Quantize(quantize_flags);
  if (doctor->parsed()) return Doctor(doctor_flags);
  if (keys->parsed()) return Keys(keys_flags);
  if (topo->parsed()) return Topo(topo_flags);
  if (bench_serve->parsed()) return BenchServe(endpoint, bench_serve_flags);
  if (scale->parsed()) {
    if (scale_flags.worker.empty()) scale_flags.worker = worker;
    return BenchScale(scale_flags);
  }
  const CLI::App* const of_worker =
      perplexity->parsed() ? perplexity : (imatrix->parsed() ? imatrix : bench);
  const std::vector<std::string> arguments = of_worker->remaining();
  if (!arguments.empty() && IsHelp(arguments.front())) {
    absl::PrintF("%s\n", of_worker->help(app.get_name()));
    if (std::fflush(stdout) != 0) return kExitError;
  }
  return WorkerCommand(worker, of_worker->get_name(), arguments);
}

}  // namespace
}  // namespace skein::client

int main(int argc, char** argv) {
  return skein::client::CheckOutput(skein::client::Main(argc, argv));
}
