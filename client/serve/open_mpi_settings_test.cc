#include "client/serve/open_mpi_settings.h"

#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::client {
namespace {

TEST(OpenMpiSettingsTest, AreThoseOfTheScript) {
  const std::unique_ptr<FILE, int (*)(FILE*)> shell(
      popen("env -i sh -c '. scripts/env.sh; env' | grep -E '^(OMPI|PRTE)_'", "r"), pclose);
  ASSERT_NE(shell, nullptr);
  std::string output;
  for (int c = 0; (c = std::fgetc(shell.get())) != EOF;) output += static_cast<char>(c);
  std::map<std::string, std::string> script;
  for (const absl::string_view line : absl::StrSplit(output, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    script.insert(variable);
  }
  ASSERT_GE(script.size(), 10u);  // and four more for root
  const auto settings = OpenMpiSettings(geteuid() == 0);
  EXPECT_EQ((std::map<std::string, std::string>(settings.begin(), settings.end())), script);
}

TEST(OpenMpiSettingsTest, OnlyRootIsAllowedToBeRoot) {
  for (const auto& [name, value] : OpenMpiSettings(false)) {
    EXPECT_EQ(name.find("ROOT"), std::string::npos) << name << "=" << value;
  }
  EXPECT_EQ(OpenMpiSettings(true).size(), OpenMpiSettings(false).size() + 4);
}

}  // namespace
}  // namespace skein::client
