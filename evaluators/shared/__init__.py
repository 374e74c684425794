"""What both sides of the pipe use: messages, forms of nested values, memory, compilers. Imports none of our rooms."""
