"""The page that shows runs in a browser, live and afterwards. It reads run folders and writes nothing into them."""
