// Gives the target that parses std_headers.h a source file.
