"""Files written whole or appended: state files, logs; damaged ones are set aside."""
