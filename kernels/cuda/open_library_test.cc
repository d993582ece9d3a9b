// Libraries that can be used, and those that cannot, said so that someone can do something about
// it.
#include "kernels/cuda/open_library.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/build_identity.h"

namespace skein::kernels::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Fake(const std::string& kind) { return "kernels/cuda/fake_" + kind + ".so"; }

TEST(OpenLibrary, LooksBesideTheProgramThenInLib) {
  EXPECT_THAT(CudaLibraryPlaces("/opt/skein/bin"),
              ElementsAre("/opt/skein/bin/libskein_cuda.so", "/opt/skein/lib/libskein_cuda.so",
                          "/opt/skein/kernels/cuda/libskein_cuda.so",
                          "/opt/kernels/cuda/libskein_cuda.so", "/kernels/cuda/libskein_cuda.so"));
}

TEST(OpenLibrary, WhatItAnswersCrossesTheBoundary) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const CudaFunctions* cuda, OpenCudaLibrary({Fake("library")}));
  EXPECT_THAT(*cuda->list_devices(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(cuda->measure_rates(0)->flops_per_s, 7);
  absl::Status want = absl::FailedPreconditionError("fake GPU 2 has no kernels");
  want.SetPayload("skein/fake", absl::Cord("a payload"));
  EXPECT_EQ(cuda->describe_device(2).status(), want);
  EXPECT_EQ(cuda->make_backend({.device = 2}).status(), want);
  EXPECT_EQ(cuda->make_copies(2).status(), want);
  EXPECT_EQ(cuda->make_events(2).status(), want);
  EXPECT_EQ(cuda->make_peer_sums(2, 0, 2).status(), want);
}

TEST(OpenLibrary, TheFirstThatIsThereCounts) {
  SKEIN_EXPECT_OK(OpenCudaLibrary({"/nowhere/a.so", Fake("library"), Fake("other_build")}));
  EXPECT_FALSE(OpenCudaLibrary({"/nowhere/a.so", Fake("other_build"), Fake("library")}).ok());
}

TEST(OpenLibrary, NoneIsNoFault) {
  const absl::Status none = OpenCudaLibrary({"/nowhere/a.so", "/nowhere/b.so"}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(none.message(), HasSubstr("there is no /nowhere/a.so"));
}

TEST(OpenLibrary, WhatCannotBeUsedIsNamed) {
  const std::string text = ::testing::TempDir() + "/text.so";
  std::ofstream(text) << "no library\n";
  struct Case {
    std::string path;
    std::string says;
  };
  for (const Case& c : {
           Case{text, "cannot be opened: " + text + ": "},
           Case{Fake("lacking"), "cannot be opened: libskein_absent.so.13: cannot open shared"},
           Case{Fake("outdated"), "undefined symbol: skein_absent"},
           Case{Fake("other_version"), "undefined symbol: skein_cuda_library_1"},
           Case{Fake("other_build"), std::string("is of another build (0123456789ab) than this "
                                                 "program (") +
                                         kBuildIdentity + ")"},
       }) {
    const absl::Status status = OpenCudaLibrary({c.path}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << c.path;
    EXPECT_THAT(status.message(), HasSubstr(c.path));
    EXPECT_THAT(status.message(), HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace skein::kernels::cuda
