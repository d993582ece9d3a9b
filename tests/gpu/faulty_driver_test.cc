// faulty_driver.so in front of a driver that this program is itself, found as the CUDA runtime
// finds one: by dlsym, then by cuGetProcAddress, which it asks for itself by both of its forms.
#include <dlfcn.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"

#define SKEIN_DRIVER extern "C" __attribute__((visibility("default"))) int

SKEIN_DRIVER cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
SKEIN_DRIVER cuGetProcAddress(const char* name, void** found, int version, uint64_t flags);
SKEIN_DRIVER cuGetProcAddress_v2(const char* name, void** found, int version, uint64_t, int*) {
  *found = nullptr;
  if (std::strcmp(name, "cuDriverGetVersion") == 0) {
    *found = reinterpret_cast<void*>(cuDriverGetVersion);
  } else if (std::strcmp(name, "cuGetProcAddress") == 0) {
    *found = version < 12000 ? reinterpret_cast<void*>(cuGetProcAddress)
                             : reinterpret_cast<void*>(cuGetProcAddress_v2);
  }
  return *found == nullptr ? 500 : 0;  // "not found"
}
SKEIN_DRIVER cuGetProcAddress(const char* name, void** found, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, found, version, flags, nullptr);
}

namespace skein::testing {
namespace {

using Version = int(int*);
using First = int(const char*, void**, int, uint64_t);
using Second = int(const char*, void**, int, uint64_t, int*);

template <typename F>
F* As(void* function) {
  return reinterpret_cast<F*>(function);
}

TEST(FaultyDriverTest, StandsBetweenHoweverAFunctionIsFound) {
  setenv("SKEIN_FAULTY_DRIVER", "old-driver", 1);
  void* const library = dlopen("tests/gpu/faulty_driver.so", RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* const find = As<void*(void*, const char*)>(dlsym(library, "dlsym"));
  void* const driver = dlopen(nullptr, RTLD_NOW);
  const auto version = [](void* function) {
    int told = 0;
    EXPECT_EQ(As<Version>(function)(&told), 0);
    return told;
  };
  EXPECT_EQ(version(dlsym(driver, "cuDriverGetVersion")), 13000);
  EXPECT_EQ(version(find(driver, "cuDriverGetVersion")), 12040);

  auto* const second = As<Second>(find(driver, "cuGetProcAddress_v2"));
  void* found = nullptr;
  ASSERT_EQ(second("cuGetProcAddress", &found, 12000, 0, nullptr), 0);
  ASSERT_EQ(As<Second>(found)("cuDriverGetVersion", &found, 2020, 0, nullptr), 0);
  EXPECT_EQ(version(found), 12040);
  ASSERT_EQ(second("cuGetProcAddress", &found, 11030, 0, nullptr), 0);
  ASSERT_EQ(As<First>(found)("cuDriverGetVersion", &found, 2020, 0), 0);
  EXPECT_EQ(version(found), 12040);

  // What no fault is about is the driver's own; what it lacks is not there.
  EXPECT_EQ(find(driver, "dlopen"), dlsym(driver, "dlopen"));
  EXPECT_EQ(second("cuNothing", &found, 2020, 0, nullptr), 500);
}

}  // namespace
}  // namespace skein::testing
