#include "proto/frozen/frozen_protocol.h"

#include <google/protobuf/descriptor.pb.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gtest/gtest.h"

namespace skein {

FrozenProtocol::FrozenProtocol(int version) : version_(version) {
  google::protobuf::FileDescriptorSet files;
  const std::string path = absl::StrCat("proto/frozen/v", version, ".descriptors");
  EXPECT_TRUE(files.ParseFromString(ReadFileOrEmpty(path)) && files.file_size() > 0)
      << path << ": freeze the version by scripts/freeze_protocol.sh";
  // A file comes after those that it imports.
  for (int round = 0; round < files.file_size(); ++round) {
    for (const auto& file : files.file()) {
      if (pool_.FindFileByName(file.name()) != nullptr) continue;
      bool ready = true;
      for (const std::string& needed : file.dependency()) {
        ready = ready && pool_.FindFileByName(needed) != nullptr;
      }
      if (ready) EXPECT_NE(pool_.BuildFile(file), nullptr) << file.name();
    }
  }
}

std::unique_ptr<google::protobuf::Message> FrozenProtocol::New(const std::string& type) const {
  const google::protobuf::Descriptor* const found = pool_.FindMessageTypeByName(type);
  EXPECT_NE(found, nullptr) << type;
  return std::unique_ptr<google::protobuf::Message>(factory_.GetPrototype(found)->New());
}

std::unique_ptr<google::protobuf::Message> FrozenProtocol::Parse(const std::string& type,
                                                                 const std::string& bytes) const {
  std::unique_ptr<google::protobuf::Message> message = New(type);
  EXPECT_TRUE(message->ParseFromString(bytes)) << type;
  return message;
}

std::string FrozenProtocol::Bytes(const std::string& name) const {
  const std::string path = absl::StrCat("proto/frozen/v", version_, "/messages/", name, ".hex");
  std::string hex = ReadFileOrEmpty(path);
  EXPECT_FALSE(hex.empty()) << path;
  hex.erase(std::remove(hex.begin(), hex.end(), '\n'), hex.end());
  return absl::HexStringToBytes(hex);
}

}  // namespace skein
