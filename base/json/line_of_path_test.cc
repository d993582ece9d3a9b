#include "base/json/line_of_path.h"

#include "gtest/gtest.h"

namespace skein {
namespace {

constexpr char kText[] = R"({
  "name": "a\"[,",
  "hosts": [
    {"name": "one", "cores": 1},
    {
      "name": "two",
      "inner": {
        "gpus": [
          {"origin": ""},
          {"rates": {
            "origin": "x"}}
        ]
      },
      "table": [[1, 2],
                [3, 4]],
      "cores": -2
    }
  ]
})";

TEST(LineOfPathTest, ValuesAreFoundByNameAndPlace) {
  EXPECT_EQ(LineOfPath(kText, "name: 'a' is none"), 2);
  EXPECT_EQ(LineOfPath(kText, "hosts: 0 of them"), 3);
  EXPECT_EQ(LineOfPath(kText, "hosts[0].cores: 1"), 4);
  EXPECT_EQ(LineOfPath(kText, "hosts[1]: -2 is no amount"), 5);
  EXPECT_EQ(LineOfPath(kText, "hosts[1].cores"), 16);
  EXPECT_EQ(LineOfPath(kText, "hosts[1]: table[1][0]: 3"), 15);
}

TEST(LineOfPathTest, AnObjectInBetweenNeedsNoName) {
  EXPECT_EQ(LineOfPath(kText, "hosts[1]: gpus[0]: origin: '' is not known"), 9);
  EXPECT_EQ(LineOfPath(kText, "hosts[1]: gpus[1]: origin: 'x' is not known"), 11);
}

TEST(LineOfPathTest, ProtobufsOwnFormIsRead) {
  EXPECT_EQ(LineOfPath(kText, "(hosts[1]) cores: Cannot find field."), 16);
  EXPECT_EQ(LineOfPath(kText, "(hosts[0].cores): invalid value"), 4);
}

TEST(LineOfPathTest, OfWhatIsNotThereTheLastPartIs) {
  EXPECT_EQ(LineOfPath(kText, "hosts[1]: gpus[7]: origin"), 8);
  EXPECT_EQ(LineOfPath(kText, "hosts[1]: sockets: 0"), 5);
  EXPECT_EQ(LineOfPath(kText, "hosts[1]: name the cores"), 5);  // a sentence
  EXPECT_EQ(LineOfPath(kText, "table: none"), 1);
  EXPECT_EQ(LineOfPath("\n\n {}", "hosts"), 3);
  for (const char* const odd :
       {"", "(", "[1]", "hosts[", "hosts[x]", "hosts[99999999999999999999]"}) {
    EXPECT_GE(LineOfPath(kText, odd), 1) << odd;
  }
  // Not even of what is no JSON.
  for (const char* const text : {"", "{", "{\"hosts\"", "{\"hosts\": [", "[[[", "{\"a\": \""}) {
    EXPECT_EQ(LineOfPath(text, "hosts[0].cores"), 1) << text;
  }
}

}  // namespace
}  // namespace skein
