"""All randomness of the library: noise, and every release that is made with it."""
