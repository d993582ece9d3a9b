#include "base/tls/mutual_tls.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/test_util.h"
#include "base/tls/certificate_for_tests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

using ::testing::StartsWith;

class MutualTlsTest : public ::testing::Test {
 protected:
  static std::string Says(const MutualTlsFiles& files) {
    const auto loaded = LoadMutualTls(files, absl::Now());
    EXPECT_FALSE(loaded.ok());
    return std::string(loaded.status().message());
  }

  const TestCertificate ca_{"ca", {}};
  const TestCertificate own_{"own", {.issuer = &ca_}};
  const MutualTlsFiles good_ = own_.TrustingOnly(ca_);
};

TEST_F(MutualTlsTest, HasWhatTheFilesHold) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const MutualTls tls, LoadMutualTls(good_, absl::Now()));
  EXPECT_EQ(tls.certificates, ReadFileOrEmpty(good_.certificate));
  EXPECT_EQ(tls.key, ReadFileOrEmpty(good_.key));
  EXPECT_EQ(tls.ca, ReadFileOrEmpty(good_.ca));
}

TEST_F(MutualTlsTest, FilesThatDoNotServeAreNamedWithTheReason) {
  EXPECT_THAT(Says({"/nowhere/a", good_.key, good_.ca}), StartsWith("/nowhere/a: No such file"));
  EXPECT_THAT(Says({good_.certificate, "/nowhere/a", good_.ca}), StartsWith("/nowhere/a: No such"));
  EXPECT_THAT(Says({good_.certificate, good_.key, "/nowhere/a"}),
              StartsWith("/nowhere/a: No such"));
  EXPECT_THAT(Says({good_.key, good_.key, good_.ca}),
              StartsWith(good_.key + ": holds no certificate in PEM"));
  EXPECT_THAT(Says({good_.certificate, ca_.key_file, good_.ca}),
              StartsWith(absl::StrCat(ca_.key_file, ": is not the key of ", good_.certificate)));
  EXPECT_THAT(Says({good_.certificate, good_.key, good_.key}),
              StartsWith(good_.key + ": holds no certificate in PEM"));
}

TEST_F(MutualTlsTest, ExpiredCertificatesAreRefusedOfTheCaToo) {
  const TestCertificate expired("expired", {.ends_after_s = -1, .issuer = &ca_});
  EXPECT_THAT(Says(expired.TrustingOnly(ca_)),
              StartsWith(expired.certificate_file + ": the certificate expired on "));
  const TestCertificate old_ca("old-ca", {.ends_after_s = -1});
  EXPECT_THAT(Says(own_.TrustingOnly(old_ca)),
              StartsWith(old_ca.certificate_file + ": the certificate expired on "));
}

TEST_F(MutualTlsTest, AnOldCaMayStandBesideItsSuccessor) {
  const TestCertificate old_ca("old-ca", {.ends_after_s = -1});
  MutualTlsFiles files = good_;
  files.ca = ::testing::TempDir() + "/both.crt";
  SKEIN_ASSERT_OK(WriteFile(
      files.ca, ReadFileOrEmpty(old_ca.certificate_file) + ReadFileOrEmpty(ca_.certificate_file)));
  SKEIN_EXPECT_OK(LoadMutualTls(files, absl::Now()));
}

}  // namespace
}  // namespace skein
