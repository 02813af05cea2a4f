#include "cmd/options/options.h"

#include "cmd/options/arguments.h"

namespace dtrun::cmd {

Result<Options> parse_command_line(const std::vector<std::string>& arguments,
                                   const Environment& environment) {
  Result<OwnArguments> own = own_arguments("dtrun", kOptions, arguments, environment);
  if (!own.ok()) return own.status();
  Options options;
  options.values = std::move(own.value().values);
  options.short_help = own.value().short_help;
  std::size_t program = own.value().count;
  if (program < arguments.size() && arguments[program] == "--") {
    options.program_is_verbatim = true;
    ++program;
  }
  options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(program), arguments.end());
  return options;
}

}  // namespace dtrun::cmd
