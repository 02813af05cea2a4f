// A struct and its message, from one list of the fields that both have by the same name: both directions
// follow from it, so neither can forget a field that the other has. For .cc files.
//
//   DTRUN_WIRE(Node, v1::Node, host, address, nproc)
//
// defines from_wire(const v1::Node&) and to_wire(const Node&, v1::Node*). A field is a number, an enum with
// the wire's values, a text, a struct for which the two are declared before, a vector of these, or an
// optional one. A time has _ms behind its name in the message. A struct that is as it begins is not sent: its
// reader gets the same. DTRUN_FIELDS, with the same arguments, defines read_fields() and write_fields() for a
// pair that has something done by hand besides.
#pragma once

#include <string>
#include <type_traits>

namespace dtrun::wire {

template <typename T>
inline constexpr bool kIsPlain =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>;
template <typename T>
inline constexpr bool kIsOptional = requires(const T& value) {
  value.has_value();
};
template <typename T>
inline constexpr bool kIsList = !kIsPlain<T> && requires(T list) {
  list.push_back(list.front());
};

// `convert`: from_wire() as the caller sees it.
template <typename From, typename To, typename Convert>
void read(const From& from, To* to, const Convert& convert) {
  if constexpr (std::is_enum_v<To>)
    *to = static_cast<To>(from);
  else if constexpr (kIsPlain<To>)
    *to = from;
  else if constexpr (kIsList<To>)
    for (const auto& one : from) read(one, &to->emplace_back(), convert);
  else
    *to = convert(from);
}

template <typename To, typename From>
decltype(auto) plain(const From& from) {
  if constexpr (std::is_enum_v<From>)
    return static_cast<To>(from);
  else
    return (from);
}

// Into a message or a repeated field. `convert`: to_wire() as the caller sees it.
template <typename From, typename To, typename Convert>
void write(const From& from, To* to, const Convert& convert) {
  if constexpr (!kIsList<From>)
    convert(from, to);
  else if constexpr (kIsPlain<typename From::value_type>)
    to->Add(from.begin(), from.end());
  else
    for (const auto& one : from) convert(one, to->Add());
}

// Calls `use` with the value, if it is one that is sent, and the message.
template <typename Field, typename Message, typename Use>
void if_sent(const Field& field, Message* to, const Use& use) {
  if constexpr (kIsOptional<Field>) {
    if (field) use(*field, to);
  } else if constexpr (kIsPlain<Field> || kIsList<Field>) {
    use(field, to);
  } else if (field != Field{}) {
    use(field, to);
  }
}

}  // namespace dtrun::wire

// DTRUN_EACH(F, a, b) is F(a) F(b), for up to 64 names.
#define DTRUN_EACH(F, ...) DTRUN_SCAN_64(DTRUN_FIRST(F, __VA_ARGS__))
#define DTRUN_FIRST(F, name, ...) F(name) __VA_OPT__(DTRUN_LATER DTRUN_PARENTHESES(F, __VA_ARGS__))
#define DTRUN_LATER() DTRUN_FIRST
#define DTRUN_PARENTHESES ()
#define DTRUN_SCAN_64(...) DTRUN_SCAN_16(DTRUN_SCAN_16(DTRUN_SCAN_16(DTRUN_SCAN_16(__VA_ARGS__))))
#define DTRUN_SCAN_16(...) DTRUN_SCAN_4(DTRUN_SCAN_4(DTRUN_SCAN_4(DTRUN_SCAN_4(__VA_ARGS__))))
#define DTRUN_SCAN_4(...) DTRUN_SCAN_1(DTRUN_SCAN_1(DTRUN_SCAN_1(DTRUN_SCAN_1(__VA_ARGS__))))
#define DTRUN_SCAN_1(...) __VA_ARGS__

// In generic lambdas, where a branch for another kind of field is not looked at.
#define DTRUN_READ_FIELD(name)                                                     \
  if constexpr (requires { from.name##_ms(); })                                    \
    to.name = from.name##_ms();                                                    \
  else if constexpr (!::dtrun::wire::kIsOptional<std::decay_t<decltype(to.name)>>) \
    ::dtrun::wire::read(from.name(), &to.name, convert);                           \
  else if (from.has_##name())                                                      \
    ::dtrun::wire::read(from.name(), &to.name.emplace(), convert);
#define DTRUN_WRITE_FIELD(name)                                                    \
  ::dtrun::wire::if_sent(from.name, to, [&](const auto& value, auto* message) {    \
    if constexpr (requires { message->set_##name##_ms(value); })                   \
      message->set_##name##_ms(value);                                             \
    else if constexpr (::dtrun::wire::kIsPlain<std::decay_t<decltype(value)>>)     \
      message->set_##name(::dtrun::wire::plain<decltype(message->name())>(value)); \
    else                                                                           \
      ::dtrun::wire::write(value, message->mutable_##name(), convert);             \
  });

#define DTRUN_FIELDS(Struct, Message, ...)                                                          \
  static void read_fields(const Message& message, Struct* value) {                                  \
    const auto convert = [](const auto& part) { return from_wire(part); };                          \
    [&](const auto& from, auto& to) { DTRUN_EACH(DTRUN_READ_FIELD, __VA_ARGS__) }(message, *value); \
  }                                                                                                 \
  static void write_fields(const Struct& value, Message* message) {                                 \
    const auto convert = [](const auto& part, auto* wire) { to_wire(part, wire); };                 \
    [&](const auto& from, auto* to) { DTRUN_EACH(DTRUN_WRITE_FIELD, __VA_ARGS__) }(value, message); \
  }
#define DTRUN_WIRE(Struct, Message, ...)     \
  DTRUN_FIELDS(Struct, Message, __VA_ARGS__) \
  Struct from_wire(const Message& wire) {    \
    Struct value;                            \
    read_fields(wire, &value);               \
    return value;                            \
  }                                          \
  void to_wire(const Struct& value, Message* wire) { write_fields(value, wire); }
