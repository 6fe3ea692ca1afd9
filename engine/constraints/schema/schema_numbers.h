// The numbers that the keywords of a schema allow.
#pragma once

#include "engine/constraints/expressions/numbers.h"
#include "engine/constraints/schema/schema_document.h"

namespace troupe::engine::constraints {

// Narrows `range` by minimum, maximum, exclusiveMinimum, exclusiveMaximum and multipleOf of a source. Throws
// SchemaRefused.
void narrow(NumberRange& range, const SchemaNode& source);

}  // namespace troupe::engine::constraints
