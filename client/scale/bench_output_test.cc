#include "client/scale/bench_output.h"

#include "absl/status/status.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::client {
namespace {

TEST(BenchOutputTest, TheReportStandsAmongOtherLines) {
  const auto seconds = SecondsOfRows("decode",
                                     "a table {\n{ is no report\n{\n \"rows\": [{\"seconds\": "
                                     "0.5}, {\"seconds\": 2}]\n}\nMPI says: {}\n",
                                     2);
  SKEIN_ASSERT_OK(seconds);
  EXPECT_THAT(*seconds, testing::ElementsAre(0.5, 2));
}

TEST(BenchOutputTest, WhatIsNoReportOfTheRowsIsNamed) {
  for (const char* const output :
       {"", "no report\n", "{\n", "\n}\n{\n", "{\n\"rows\": 1\n}\n", "{\n\"rows\": []\n}\n",
        "{\n\"rows\": [{\"seconds\": 0}]\n}\n", "{\n\"rows\": [{\"seconds\": \"1\"}]\n}\n",
        "{\n\"rows\": [1]\n}\n", "{\n\"rows\": [{\"seconds\": 1}, {\"seconds\": 1}]\n}\n"}) {
    const absl::Status status = SecondsOfRows("decode", output, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << output;
    EXPECT_THAT(status.message(), testing::HasSubstr("`worker bench decode`")) << output;
  }
}

}  // namespace
}  // namespace skein::client
