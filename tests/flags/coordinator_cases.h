// What the flags of the coordinator do, by subject.
#pragma once

#include "tests/flags/flag_cases.h"

namespace skein::testing {

inline constexpr char kCoordinator[] = "coordinator/coordinator";

// Of HTTP, metrics, and who may come in.
FlagCases DoorCases();
// Of the journal of answers.
FlagCases JournalCases();

}  // namespace skein::testing
