#include "rendezvous/wire/intake.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "proto/core/utf8.h"

namespace dtrun::rendezvous {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool has_lines(const FieldDescriptor& field) {
  if (field.containing_type()->name() != "WorkerOutcome") return field.name() == "job";
  return field.name() != "host" && field.name() != "where";
}

// Most texts are plain, and need not be written again.
bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

void clean_text(Message* message, const FieldDescriptor* field) {
  const Reflection& access = *message->GetReflection();
  const auto shown = [&](const std::string& text) {
    return has_lines(*field) ? printable(text) : printable_line(text);
  };
  std::string scratch;
  if (!field->is_repeated()) {
    const std::string& text = access.GetStringReference(*message, field, &scratch);
    if (!is_plain(text)) access.SetString(message, field, shown(text));
    return;
  }
  for (int i = 0; i < access.FieldSize(*message, field); ++i) {
    const std::string& text = access.GetRepeatedStringReference(*message, field, i, &scratch);
    if (!is_plain(text)) access.SetRepeatedString(message, field, i, shown(text));
  }
}

void clean_parts(Message* message, const FieldDescriptor* field) {
  const Reflection& access = *message->GetReflection();
  if (!field->is_repeated()) return make_printable(access.MutableMessage(message, field));
  for (int i = 0; i < access.FieldSize(*message, field); ++i)
    make_printable(access.MutableRepeatedMessage(message, field, i));
}

std::vector<const FieldDescriptor*> set_fields(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

}  // namespace

void make_printable(Message* message) {
  for (const FieldDescriptor* field : set_fields(*message)) {
    if (field->type() == FieldDescriptor::TYPE_STRING) clean_text(message, field);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) clean_parts(message, field);
  }
}

std::optional<std::string> too_long(const v1::FromAgent& message) {
  const std::size_t size = message.ByteSizeLong();
  if (!message.has_stopped() && size > kMostOfMessage)
    return "a message of " + std::to_string(size) + " bytes; " + std::to_string(kMostOfMessage) +
           " are the most";
  const v1::Join& join = message.join();
  std::string scratch;
  for (const FieldDescriptor* field : set_fields(join)) {
    if (field->type() != FieldDescriptor::TYPE_STRING || field->is_repeated() || field->name() == "job")
      continue;
    const std::size_t length = join.GetReflection()->GetStringReference(join, field, &scratch).size();
    if (length > kMostOfText)
      return "a " + field->name() + " of " + std::to_string(length) + " bytes; " +
             std::to_string(kMostOfText) + " are the most";
  }
  return std::nullopt;
}

}  // namespace dtrun::rendezvous
