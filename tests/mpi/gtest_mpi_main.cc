#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "parallel/comm/gather_strings.h"
#include "tests/mpi/mpi_test_main.h"

namespace skein::comm {
namespace {

MpiRuntime* runtime = nullptr;  // owned by main

// How far ranks may be apart at the end of a case.
constexpr absl::Duration kCaseTimeout = absl::Minutes(1);

// Ends the whole job: mpirun sees a rank that leaves without MPI_Finalize.
[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "rank %d: %s\n", runtime == nullptr ? -1 : runtime->rank(),
               status.ToString().c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

std::string Failures(const testing::TestResult& result) {
  std::string text;
  for (int i = 0; i < result.total_part_count(); ++i) {
    const testing::TestPartResult& part = result.GetTestPartResult(i);
    if (!part.failed()) continue;
    absl::StrAppend(&text, part.file_name() == nullptr ? "?" : part.file_name(), ":",
                    part.line_number(), ": ", part.message(), "\n");
  }
  return text;
}

// Joins the ranks' results at the end of each case. Every rank sends the case's name along, so that
// ranks which run different cases are found.
class JoinResults final : public testing::EmptyTestEventListener {
 public:
  void OnTestEnd(const testing::TestInfo& test) override {
    const std::string failures = Failures(*test.result());
    const std::string name = absl::StrCat(test.test_suite_name(), ".", test.name());
    const auto names = GatherStrings(runtime->world(), name);
    if (!names.ok()) Die(names.status());
    const auto texts = GatherStrings(runtime->world(), failures);
    if (!texts.ok()) Die(texts.status());
    if (runtime->rank() != 0) return;
    for (int rank = 1; rank < runtime->size(); ++rank) {
      if ((*names)[rank] != name) {
        ADD_FAILURE() << "rank " << rank << " ran " << (*names)[rank] << " meanwhile";
      }
      if (!(*texts)[rank].empty()) ADD_FAILURE() << "on rank " << rank << ":\n" << (*texts)[rank];
    }
  }
};

// Suites named ...PeersTest and ...PeersSuite have no case where a rank is alone: it is neither run
// nor reported.
void LeaveOutPeers() {
  std::string filter = GTEST_FLAG_GET(filter);
  absl::StrAppend(&filter, filter.find('-') == std::string::npos ? "-" : ":",
                  "*PeersTest.*:*PeersSuite.*");
  GTEST_FLAG_SET(filter, filter);
}

int Main(int argc, char** argv) {
  auto created = MpiRuntime::Create();
  if (!created.ok()) Die(created.status());
  runtime = created->get();
  runtime->world().set_timeout(kCaseTimeout);
  const bool reports = runtime->rank() == 0;
  if (!reports) {
    // Before gtest reads them: one report for all ranks.
    for (const char* name : {"XML_OUTPUT_FILE", "GTEST_OUTPUT", "TEST_PREMATURE_EXIT_FILE"}) {
      unsetenv(name);
    }
  }
  testing::InitGoogleTest(&argc, argv);
  if (runtime->size() == 1) LeaveOutPeers();
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (!reports) {
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
  }
  listeners.Append(new JoinResults);  // last, and so the first to see the end of a case
  const int result = RUN_ALL_TESTS();
  if (runtime->size() > 1) {
    if (const absl::Status met = runtime->world().Barrier(kHostStream); !met.ok()) Die(met);
  }
  return reports ? result : 0;  // rank 0 speaks for all
}

}  // namespace

MpiRuntime& TestRuntime() { return *runtime; }

}  // namespace skein::comm

int main(int argc, char** argv) { return skein::comm::Main(argc, argv); }
