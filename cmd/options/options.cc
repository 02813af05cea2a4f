#include "cmd/options/options.h"

#include "cmd/options/arguments.h"

namespace dtrun::cmd {

Result<Options> parse_command_line(const std::vector<std::string>& arguments,
                                   const Environment& environment) {
  ASSIGN_OR_RETURN(OwnArguments own, own_arguments("dtrun", kOptions, arguments, environment));
  Options options;
  options.values = std::move(own.values);
  options.short_help = own.short_help;
  std::size_t program = own.count;
  if (program < arguments.size() && arguments[program] == "--") {
    options.program_is_verbatim = true;
    ++program;
  }
  options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(program), arguments.end());
  return options;
}

}  // namespace dtrun::cmd
