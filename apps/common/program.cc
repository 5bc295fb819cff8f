#include "apps/common/program.h"

#include "apps/common/training.h"

namespace lockstep::apps {

int run(int argc, char** argv, Program program) {
  CLI::App app(program.about, program.name);
  use_help_format(app);
  if (program.add_options) program.add_options(app);
  add_options(app, program.options);
  app.footer(program.examples);
  if (const int exit_code = parse(app, argc, argv); exit_code >= 0) return exit_code;
  return report_errors(program.name, [&] {
    const Model model = program.model(app, program.options);
    fill_defaults(app, program.options);
    return train(program.options, model);
  });
}

int run(int argc, char** argv, Program program, const std::string& name, const parallel::MakeModule& make) {
  program.model = [&](const CLI::App&, Options&) { return Model{{{"model", name}}, make}; };
  return run(argc, argv, std::move(program));
}

}  // namespace lockstep::apps
