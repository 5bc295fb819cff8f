#include "apps/common/command_line.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <sstream>
#include <system_error>

#include "apps/common/output.h"
#include "core/printable.h"

namespace lockstep::apps {
namespace {

constexpr int kExitUsage = 1;  // as for values that are found to be wrong later
constexpr const char* kNoMemory =
    "the system gives this process no more memory: close other programs, or allow it more (ulimit -v)";

class Help : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    constexpr size_t kWidth = 80, kColumn = 26;
    const std::string indent(kColumn, ' ');
    std::string text = "  " + make_option_name(option, is_positional) + make_option_opts(option);
    text += text.size() < kColumn ? std::string(kColumn - text.size(), ' ') : "\n" + indent;
    size_t column = kColumn;
    std::istringstream words(make_option_desc(option));
    for (std::string word; words >> word; column += word.size()) {
      const bool first = column == kColumn;
      if (!first && column + 1 + word.size() > kWidth) {
        text += "\n" + indent;
        column = kColumn;
      } else if (!first) {
        text += " ";
        ++column;
      }
      text += word;
    }
    return text + "\n";
  }

  std::string make_option_opts(const CLI::Option* option) const override {  // versions of CLI11 differ here
    if (option->get_type_size() == 0) return "";
    std::string text = " " + option->get_type_name();
    if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
    if (option->get_expected_max() > 1) text += " ...";
    if (option->get_required()) text += " REQUIRED";
    return text;
  }
};

// "--devices is 'two': use a whole number", where CLI11 says that it could not convert it.
std::string unreadable_value(const CLI::App& app, const CLI::ConversionError& error) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool whole = type == "INT" || type == "UINT";
    if (!whole && type != "FLOAT") continue;
    for (const std::string& value : option->results())
      if (error.what() == fmt::format("Could not convert: {} = {}", option->get_name(), value))
        return fmt::format("{} is '{}': use {}", option->get_name(), printable(value),
                           whole ? "a whole number" : "a number");
  }
  return error.what();
}

}  // namespace

void use_help_format(CLI::App& app) {
  app.option_defaults()->always_capture_default();
  app.formatter(std::make_shared<Help>());
  app.set_version_flag("--version", fmt::format("{} {}", app.get_name(), version()), "Print the version.");
}

int parse(CLI::App& app, int argc, char** argv) {
  reserve_standard_streams();
  try {
    app.parse(argc, argv);
    return -1;
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    const int exit_code = app.exit(help, text, text);
    return report_errors(app.get_name(), [&] {
      fmt::print("{}", text.str());
      return exit_code;
    });
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    const std::string asked = app.remaining().front();
    const std::optional<std::string> near = near_name(asked, names);
    print_notice(fmt::format("{}: unknown argument '{}'{} See --help", app.get_name(), asked,
                             near ? fmt::format(", did you mean '{}'?", *near) : "."));
  } catch (const CLI::ConversionError& error) {
    print_notice(fmt::format("{}: {}. See --help", app.get_name(), unreadable_value(app, error)));
  } catch (const CLI::ParseError& error) {
    print_notice(fmt::format("{}: {}. See --help", app.get_name(), error.what()));
  }
  return kExitUsage;
}

int report_errors(const std::string& program, const std::function<int()>& work) {
  // What leaves a library's own thread cannot be caught: there it is told, and the program ends.
  static std::string name;
  name = program;
  std::set_terminate([] {
    const std::exception_ptr thrown = std::current_exception();
    if (!thrown) std::abort();
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), kNoMemory);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    } catch (...) {
      std::fprintf(stderr, "%s: something that is no std::exception was thrown\n", name.c_str());
    }
    std::_Exit(1);
  });
  try {
    const int exit_code = work();
    if (exit_code == 0) flush_output();  // else it has said already what went wrong
    return exit_code;
  } catch (const std::bad_alloc&) {
    print_notice(fmt::format("{}: {}", program, kNoMemory));
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0)  // fmt::print's, whose message does not say where to
      print_notice(fmt::format("{}: standard output: cannot write: {}", program, error.code().message()));
    else if (error.code() == std::errc::resource_unavailable_try_again)
      print_notice(
          fmt::format("{}: the system gives this process no more threads: allow it more (ulimit -v, "
                      "ulimit -u), or use a smaller HOSTCUDA_THREADS",
                      program));
    else
      print_notice(fmt::format("{}: {}", program, error.what()));
  } catch (const std::exception& error) {
    print_notice(fmt::format("{}: {}", program, error.what()));
  }
  return 1;
}

const char* version() {
  return LOCKSTEP_VERSION;
}

void check_value(bool good, const char* option, double value, const char* wanted) {
  if (!good) throw Error(fmt::format("{} is {}: use {}", option, value, wanted));
}

}  // namespace lockstep::apps
