// A real job and real programs over TLS, with the certificates that scripts/make-certs.sh makes.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/test_util.h"
#include "base/tls/certificate_for_tests.h"
#include "base/tls/mutual_tls.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

std::vector<std::string> FlagsOf(const MutualTlsFiles& files) {
  return {"--tls-cert=" + files.certificate, "--tls-key=" + files.key, "--tls-ca=" + files.ca};
}

class TlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Process make({.name = "make-certs",
                  .argv = {"scripts/make-certs.sh", certs_, "localhost", "127.0.0.1"}});
    ASSERT_EQ(make.Wait(absl::Seconds(30)), 0) << make.Output();
  }
  MutualTlsFiles Files(const std::string& name) const {
    return {absl::StrCat(certs_, "/", name, ".crt"), absl::StrCat(certs_, "/", name, ".key"),
            certs_ + "/ca.crt"};
  }

  const std::string certs_ = ::testing::TempDir() + "/certs";
};

TEST_F(TlsTest, AJobServesWhileStrangersAreRefused) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const MutualTls client, LoadMutualTls(Files("client"), absl::Now()));
  Cluster cluster(
      {.layout = "tp=2,pp=1", .coordinator_flags = FlagsOf(Files("server")), .tls = client});
  cluster.StartJob(2, FlagsOf(Files("client")));
  ASSERT_TRUE(cluster.WaitForServing(1));
  const Answer want = cluster.Generate(GreedyRequest("ROMEO:", 16));
  ASSERT_TRUE(want.status.ok()) << want.status.error_message();
  EXPECT_EQ(want.tokens.size(), 16u);

  const TestCertificate other_ca("other-ca", {});
  const TestCertificate stranger("stranger", {.issuer = &other_ca});
  MutualTlsFiles of_stranger = stranger.TrustingOnly(other_ca);
  of_stranger.ca = Files("client").ca;  // it takes the coordinator for what it is
  for (const std::vector<std::string>& flags : {std::vector<std::string>(), FlagsOf(of_stranger)}) {
    std::vector<std::string> all = {"--orphan-timeout=3s"};
    all.insert(all.end(), flags.begin(), flags.end());
    Process& job = cluster.StartJob(2, all);
    const auto status = job.Wait(absl::Seconds(60));
    ASSERT_TRUE(status.has_value());
    EXPECT_NE(*status, 0);
    EXPECT_TRUE(job.WaitForOutput("--tls-cert", absl::Seconds(1)));
    EXPECT_EQ(cluster.Generate(GreedyRequest("ROMEO:", 16)).tokens, want.tokens);
  }
  EXPECT_EQ(cluster.Status().jobs_size(), 1);
  EXPECT_TRUE(cluster.coordinator().WaitForOutput("a connection was refused, its TLS failed: ",
                                                  absl::Seconds(1)));
  EXPECT_TRUE(cluster.coordinator().WaitForOutput("certificate verify failed", absl::Seconds(1)));
}

}  // namespace
}  // namespace skein::testing
