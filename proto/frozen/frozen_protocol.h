// A version of the protocol as a program of its time knows it: its schema, and messages that were
// made by it.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/message.h>

#include <memory>
#include <string>

namespace skein {

// What is missing fails the test.
class FrozenProtocol {
 public:
  explicit FrozenProtocol(int version);

  const google::protobuf::DescriptorPool& pool() const { return pool_; }
  // Of a type of then, "skein.cluster.v1.Hello".
  std::unique_ptr<google::protobuf::Message> New(const std::string& type) const;
  std::unique_ptr<google::protobuf::Message> Parse(const std::string& type,
                                                   const std::string& bytes) const;
  // As they went over the wire: of messages/NAME.txtpb.
  std::string Bytes(const std::string& name) const;

 private:
  const int version_;
  google::protobuf::DescriptorPool pool_;
  mutable google::protobuf::DynamicMessageFactory factory_{&pool_};
};

}  // namespace skein
