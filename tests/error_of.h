// What an error says: for tests of bad input.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernels/check.h"

namespace lockstep {

// The message of the Error that `call` throws; a test failure where it throws none.
template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a lockstep::Error";
  return "";
}

}  // namespace lockstep
