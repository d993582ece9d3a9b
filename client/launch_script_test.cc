#include "client/launch_script.h"

#include <string>
#include <vector>

#include "base/port_range.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/planner/search.h"
#include "topology/presets/presets.h"
#include "topology/topology.h"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using topology::Topology;

// Each stage's sites, of each replica.
using Sites = std::vector<std::vector<std::vector<cost::Site>>>;

plan::Choice Placed(const Sites& replicas) {
  plan::Choice choice;
  for (const auto& stages : replicas) {
    cost::Replica& replica = choice.replicas.emplace_back();
    for (const std::vector<cost::Site>& sites : stages) replica.stages.push_back({.sites = sites});
  }
  choice.layout = {static_cast<int32_t>(replicas.front().front().size()),
                   static_cast<int32_t>(replicas.front().size()),
                   static_cast<int32_t>(replicas.size())};
  return choice;
}

Topology Machines(const char* preset, int32_t nodes = 1) {
  return *topology::MakePreset(preset, nodes);
}

LaunchTask Task() {
  return {.model = "/models/a b", .coordinator = "/opt/coordinator", .worker = "/opt/worker"};
}

std::string Script(const Topology& topology, const plan::Choice& choice,
                   const LaunchTask& task = Task()) {
  const absl::StatusOr<std::string> script = LaunchScript(topology, choice, task);
  SKEIN_EXPECT_OK(script);
  return script.value_or("");
}

TEST(LaunchScriptTest, AJobForEachReplicaWithItsGpus) {
  const Topology box = Machines("dgx-h100");
  const std::string script = Script(
      box, Placed({{{{0, 0}, {0, 1}}, {{0, 2}, {0, 3}}}, {{{0, 6}, {0, 5}}, {{0, 4}, {0, 7}}}}));
  EXPECT_THAT(script, StartsWith("#!/usr/bin/env bash\n# tp=2,pp=2,dp=2: 2 jobs of 4 ranks on 1 "
                                 "host. Run it on "));
  EXPECT_THAT(script,
              HasSubstr("\n/opt/coordinator \\\n  --model='/models/a b' --layout=tp=2,pp=2,dp=1 "
                        "--listen=127.0.0.1:50051 &\ncoordinator=$!\n"));
  EXPECT_THAT(script, HasSubstr("\nmpirun \\\n  -np 4 -x CUDA_VISIBLE_DEVICES=0,1,2,3 /opt/worker "
                                "--coordinator=127.0.0.1:50051 &\n\nmpirun \\\n  -np 4 -x "
                                "CUDA_VISIBLE_DEVICES=6,5,4,7 /opt/worker "));
  // Of one host.
  EXPECT_THAT(script, AllOf(Not(HasSubstr("--host")), Not(HasSubstr("if_include")),
                            Not(HasSubstr("keepalive"))));
}

TEST(LaunchScriptTest, AllGpusInTheirOrderNeedNoNames) {
  const Topology box = Machines("pcie-4");
  const plan::Choice all = Placed({{{{0, 0}, {0, 1}, {0, 2}, {0, 3}}}});
  EXPECT_THAT(Script(box, all), Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
  LaunchTask task = Task();
  task.this_host = box.hosts[0].name;
  task.visible_devices = {"7", "5", "GPU-3", "1"};
  EXPECT_THAT(Script(box, all, task), HasSubstr("CUDA_VISIBLE_DEVICES=7,5,GPU-3,1 "));
  task.this_host = "elsewhere";
  EXPECT_THAT(Script(box, all, task), Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
  // Which of them are meant cannot be told.
  task.this_host = box.hosts[0].name;
  task.visible_devices.pop_back();
  EXPECT_THAT(LaunchScript(box, all, task),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("CUDA_VISIBLE_DEVICES names 3 GPUs, and ")));
}

// A replica goes on where it has begun, and comes back: ranks of a host share its list of GPUs.
TEST(LaunchScriptTest, RanksGoFromHostToHost) {
  Topology two = Machines("pcie-4", 2);
  two.hosts[0].name = "alpha";
  two.hosts[1].name = "beta";
  for (topology::Host& host : two.hosts) host.interconnect.nics.clear();
  const plan::Choice choice = Placed({{{{0, 3}}, {{1, 1}}, {{0, 2}}}});
  const std::string script = Script(two, choice);
  EXPECT_THAT(script, HasSubstr("mpirun \\\n"
                                "  -np 1 --host alpha:2 -x CUDA_VISIBLE_DEVICES=3,2 /opt/worker "
                                "--coordinator=alpha:50051 : \\\n"
                                "  -np 1 --host beta:1 -x CUDA_VISIBLE_DEVICES=1 /opt/worker "
                                "--coordinator=alpha:50051 : \\\n"
                                "  -np 1 --host alpha:2 -x CUDA_VISIBLE_DEVICES=3,2 /opt/worker "));
  EXPECT_THAT(script,
              AllOf(HasSubstr("Run it on alpha;"), HasSubstr("--listen=alpha:50051 --insecure "),
                    Not(HasSubstr("if_include"))));
  LaunchTask task = Task();
  task.tls = {"/certs/own.crt", "/certs/own.key", "/certs/ca.crt"};
  const std::string flags =
      " --tls-cert=/certs/own.crt --tls-key=/certs/own.key --tls-ca=/certs/ca.crt";
  EXPECT_THAT(
      Script(two, choice, task),
      AllOf(HasSubstr("--listen=alpha:50051" + flags + " &\n"),
            HasSubstr("--coordinator=alpha:50051" + flags + " : "), Not(HasSubstr("--insecure"))));
  task.interface = "eth1";
  EXPECT_THAT(Script(two, choice, task),
              AllOf(HasSubstr("export OMPI_MCA_btl_tcp_if_include=eth1\n"),
                    HasSubstr("export OMPI_MCA_oob_tcp_if_include=eth1\n"),
                    HasSubstr("export PRTE_MCA_prte_if_include=eth1\n"),
                    HasSubstr("export NCCL_SOCKET_IFNAME==eth1\n")));
  two.hosts[1].name = "$(reboot)";
  EXPECT_THAT(LaunchScript(two, choice, task),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--emit: '$(reboot)' is no name that a host is reached by")));
}

TEST(LaunchScriptTest, CoresHaveNoGpus) {
  Topology cores;
  cores.hosts = {{.name = "box", .cores = 4}};
  EXPECT_THAT(Script(cores, Placed({{{{0, -1}, {0, -1}}}})),
              HasSubstr("mpirun \\\n  -np 2 /opt/worker --coordinator=127.0.0.1:50051 "
                        "--device=cpu &\n"));
}

// Or each would take all of them.
TEST(LaunchScriptTest, ReplicasThatShareCoresAreOneJob) {
  Topology cores;
  cores.hosts = {{.name = "a", .cores = 4}, {.name = "b", .cores = 4}};
  const std::string shared = Script(cores, Placed({{{{0, -1}}}, {{{1, -1}}}, {{{0, -1}}}}));
  EXPECT_THAT(shared, AllOf(HasSubstr("--layout=tp=1,pp=1,dp=3 "),
                            HasSubstr("-np 1 --host a:2 /opt/worker --coordinator=a:50051 "
                                      "--device=cpu : \\\n  -np 1 --host b:1 "),
                            HasSubstr(": 1 job of 3 ranks on 2 hosts")));
  EXPECT_THAT(Script(cores, Placed({{{{0, -1}}}, {{{1, -1}}}})),
              AllOf(HasSubstr("--layout=tp=1,pp=1,dp=1 "), HasSubstr(": 2 jobs of 1 rank on")));
}

TEST(LaunchScriptTest, PortsAreOfTheRangeAndNobodySharesOne) {
  const Topology box = Machines("dgx-h100");
  const plan::Choice two = Placed({{{{0, 0}, {0, 1}}}, {{{0, 2}, {0, 3}}}});
  LaunchTask task = Task();
  task.ports = PortRange{41000, 41010};  // 1 + 2 * (2 + 1 + 2)
  const std::string script = Script(box, two, task);
  EXPECT_THAT(script,
              AllOf(HasSubstr("--listen=127.0.0.1:41000 "),
                    HasSubstr("\nOMPI_MCA_oob_tcp_dynamic_ipv4_ports=41001-41002 "
                              "OMPI_MCA_oob_tcp_dynamic_ipv6_ports=41001-41002 \\\n"
                              "OMPI_MCA_btl_tcp_port_min_v4=41004 "
                              "OMPI_MCA_btl_tcp_port_range_v4=2 \\\n"
                              "OMPI_MCA_btl_tcp_port_min_v6=41004 "
                              "OMPI_MCA_btl_tcp_port_range_v6=2 \\\nmpirun "),
                    HasSubstr("\nOMPI_MCA_oob_tcp_dynamic_ipv4_ports=41006-41007 "
                              "OMPI_MCA_oob_tcp_dynamic_ipv6_ports=41006-41007 \\\n"
                              "OMPI_MCA_btl_tcp_port_min_v4=41009 "),
                    HasSubstr(" --coordinator=127.0.0.1:41000 --control-ports=41003-41003 &\n"),
                    HasSubstr(" --coordinator=127.0.0.1:41000 --control-ports=41008-41008 &\n")));
  // Spare ones are for who starts again while the kernel still keeps some.
  task.ports->last = 41020;  // 1 + 2 * 2 * (2 + 1 + 2)
  EXPECT_THAT(Script(box, two, task),
              AllOf(HasSubstr("\nOMPI_MCA_oob_tcp_dynamic_ipv4_ports=41001-41004 "
                              "OMPI_MCA_oob_tcp_dynamic_ipv6_ports=41001-41004 \\\n"
                              "OMPI_MCA_btl_tcp_port_min_v4=41007 "
                              "OMPI_MCA_btl_tcp_port_range_v4=4 \\\n"),
                    HasSubstr("\nOMPI_MCA_oob_tcp_dynamic_ipv4_ports=41011-41014 "),
                    HasSubstr(" --control-ports=41005-41006 &\n"),
                    HasSubstr(" --control-ports=41015-41016 &\n")));
  task.ports->last = 42000;
  EXPECT_THAT(Script(box, two, task),
              HasSubstr("\nOMPI_MCA_oob_tcp_dynamic_ipv4_ports=41001-41008 "));
  task.ports->last = 41009;
  EXPECT_THAT(LaunchScript(box, two, task),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("it has 10 ports, and tp=2,pp=1,dp=2 takes 11: ")));
}

// Slurm has the whole hosts; ranks are placed by a list, and take the GPUs of their job.
TEST(LaunchScriptTest, SlurmStartsTheSame) {
  Topology two = Machines("pcie-4", 2);
  two.hosts[0].name = "alpha";
  two.hosts[1].name = "beta";
  LaunchTask task = Task();
  task.starter = Starter::kSlurm;
  task.interface = "eth1";
  task.ports = PortRange{41000, 41005};  // 1 + (1 + 3) + 1
  const plan::Choice uneven = Placed({{{{0, 3}}, {{1, 1}}, {{0, 2}}}, {{{1, 0}}}});
  const std::string script = Script(two, uneven, task);
  EXPECT_THAT(script,
              StartsWith("#!/usr/bin/env bash\n# tp=1,pp=3,dp=2: 2 jobs of 3 ranks on 2 hosts, for "
                         "sbatch.\n# scancel --batch --signal=TERM JOB "));
  EXPECT_THAT(script,
              HasSubstr("\n#SBATCH --job-name=skein\n#SBATCH --nodes=2\n#SBATCH "
                        "--nodelist=alpha,beta\n#SBATCH --exclusive\n#SBATCH --mem=0\n#SBATCH "
                        "--gpus-per-node=4\n"));
  EXPECT_THAT(script,
              HasSubstr(" --listen=\"$SLURMD_NODENAME\":41000 --insecure &\ncoordinator=$!\n"));
  EXPECT_THAT(
      script,
      HasSubstr("\nprintf '%s\\n' alpha beta alpha >\"$folder\"/job0\n"
                "OMPI_MCA_btl_tcp_port_min_v4=41002 OMPI_MCA_btl_tcp_port_range_v4=3 \\\n"
                "OMPI_MCA_btl_tcp_port_min_v6=41002 OMPI_MCA_btl_tcp_port_range_v6=3 \\\n"
                "SLURM_HOSTFILE=\"$folder\"/job0 srun --mpi=pmix --distribution=arbitrary "));
  EXPECT_THAT(
      script,
      HasSubstr(" --nodes=2 --ntasks=3 \\\n  bash -c 'case $SLURMD_NODENAME in\n"
                "  alpha) export CUDA_VISIBLE_DEVICES=3,2 ;;\n"
                "  beta) export CUDA_VISIBLE_DEVICES=1 ;;\n"
                "  esac; exec \"$@\"' bash /opt/worker "
                "--coordinator=\"$SLURMD_NODENAME\":41000 --control-ports=41001-41001 &\n"));
  EXPECT_THAT(script, AllOf(HasSubstr("export OMPI_MCA_btl_tcp_if_include=eth1\n"),
                            HasSubstr("NCCL_SOCKET_IFNAME==eth1\n"), Not(HasSubstr("mpirun")),
                            Not(HasSubstr("PRTE_")), Not(HasSubstr("--host "))));
  task.ports->last = 41004;
  EXPECT_THAT(LaunchScript(two, uneven, task),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("takes 6: one of the coordinator, and of each job one a rank")));
  task.ports.reset();
  // A name that a shell would cut.
  task.this_host = "beta";
  task.visible_devices = {"0", "a b", "c", "d"};
  EXPECT_THAT(Script(two, uneven, task),
              HasSubstr("  beta) export CUDA_VISIBLE_DEVICES='\\''a b'\\'' ;;\n"));
  two.hosts[1].interconnect.gpus.pop_back();
  EXPECT_THAT(LaunchScript(two, uneven, task),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--emit: alpha has 4 GPUs and beta 3; an allocation")));
  // All GPUs of one host.
  const std::string whole =
      Script(Machines("pcie-4"), Placed({{{{0, 0}, {0, 1}, {0, 2}, {0, 3}}}}), task);
  EXPECT_THAT(whole,
              AllOf(HasSubstr(" --ntasks=4 \\\n  /opt/worker --coordinator=127.0.0.1:50051 &\n"),
                    Not(HasSubstr("CUDA_VISIBLE_DEVICES"))));
}

TEST(LaunchScriptTest, StartersAreParsed) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Starter slurm, ParseStarter("slurm"));
  EXPECT_EQ(slurm, Starter::kSlurm);
  EXPECT_THAT(ParseStarter("pbs"), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("must be mpirun or slurm, not 'pbs'")));
}

}  // namespace
}  // namespace skein::client
