// Replaced by the first real source file of this folder.
